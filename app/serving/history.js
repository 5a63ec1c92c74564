// Makes one entry in the browser's history for each user action, so that the back button undoes it.
//
// Left to itself, Streamlit replaces the entry when a widget that is bound to the address changes (it gives the whole
// address then, and a path where scripts change it), and makes three to five of one change of pages.
(() => {
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
  let hasActed = false;
  for (const kind of ["pointerdown", "keydown", "click"]) {
    addEventListener(kind, () => { hasActed = true; }, true);
  }
  addEventListener("popstate", () => { hasActed = false; }, true);
  const change = (state, title, url) => {
    (hasActed ? push : replace)(state, title, url);
    hasActed = false;
  };
  history.pushState = change;
  history.replaceState = (state, title, url) => {
    const isChoice = typeof url === "string" && url.startsWith(location.origin) && url !== location.href;
    (isChoice ? change : replace)(state, title, url);
  };
})();
