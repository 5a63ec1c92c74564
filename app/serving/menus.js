// A menu is placed when it opens, still empty: with each part that comes it is placed again, so that none is cut.
addEventListener("animationstart", ({animationName, target}) => {
  if (animationName !== "menu-part") return;
  target.closest("[data-testid=stPopoverBody]").style.maxHeight = "70vh"; // as high as it would be, not as it was
  dispatchEvent(new Event("resize"));
});
// Escape closes a menu: what was typed last reaches the server first.
addEventListener("keydown", ({key, target}) => {
  if (key === "Escape" && target.closest?.("[data-testid=stPopoverBody]")) target.blur();
}, true);
