// Makes one entry in the browser's history for each user action, so that the back button undoes it; each entry keeps
// how far its page was scrolled.
//
// Left to itself, Streamlit replaces the entry when a widget that is bound to the address changes (it gives the whole
// address then, and a path where scripts change it), and makes three to five of one change of pages.
(() => {
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history);
  const RESTORE_MS = 10000, LOOK_MS = 100, STILL_LOOKS = 5;
  let hasActed = false, top = 0, restoring = null;
  const page = () => document.querySelector("[data-testid=stMain]");
  const stop = () => { clearInterval(restoring); restoring = null; };
  for (const kind of ["pointerdown", "keydown", "click"]) {
    addEventListener(kind, () => {
      stop();
      hasActed = true;
      top = page()?.scrollTop ?? 0;
    }, true);
  }
  addEventListener("wheel", stop, {capture: true, passive: true});
  // The page is drawn piece by piece, and is too short for its place until then.
  const restore = (wanted) => {
    const end = Date.now() + RESTORE_MS;
    let numStill = 0;
    stop();
    restoring = setInterval(() => {
      const shown = page(), isIdle = document.querySelector("[data-test-script-state=notRunning]") !== null;
      if (!shown) return;
      numStill = isIdle && Math.abs(shown.scrollTop - wanted) < 2 ? numStill + 1 : 0;
      shown.scrollTop = wanted;
      if (numStill >= STILL_LOOKS || Date.now() > end) stop();
    }, LOOK_MS);
  };
  addEventListener("popstate", (event) => {
    hasActed = false;
    if (event.isTrusted) restore(event.state?.top ?? 0); // not a chart's, which tells of a zoom
  }, true);
  const change = (state, title, url) => {
    if (hasActed) {
      replace({...history.state, top}, "", location.href);
      push(state, title, url);
    } else {
      replace(state, title, url);
    }
    hasActed = false;
  };
  history.pushState = change;
  history.replaceState = (state, title, url) => {
    const isChoice = typeof url === "string" && url.startsWith(location.origin) && url !== location.href;
    (isChoice ? change : replace)(state, title, url);
  };
})();
