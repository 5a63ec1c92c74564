// Scrolls a strip of tabs that is wider than the page to its chosen tab, whose style starts an animation.
addEventListener("animationstart", ({animationName, target}) => {
  if (animationName !== "chosen-tab") return;
  const strip = target.parentElement;
  strip.scrollLeft = target.offsetLeft - (strip.clientWidth - target.offsetWidth) / 2;
});
