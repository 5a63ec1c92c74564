// Gives a chart its width, with which it is drawn, when its place is in the window or, in a quiet moment, near it, or when
// the page is printed, where all charts are also as wide as the paper.
(() => {
  const PLACES = "[class*=st-key-card-] [data-testid=stFullScreenFrame]", NEAR = "600px";
  const later = window.requestIdleCallback ?? setTimeout;
  const show = (place) => { place.dataset.near = ""; };
  const watcher = new IntersectionObserver((changes) => {
    for (const {isIntersecting, boundingClientRect: {top, bottom}, target} of changes) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      if (top < innerHeight && bottom > 0) show(target);
      else later(() => show(target));
    }
  }, {rootMargin: NEAR, scrollMargin: NEAR});
  const draws = new WeakMap();
  window.ResizeObserver = class extends ResizeObserver {
    constructor(callback) {
      super(callback);
      this.draw = () => callback([], this);
    }
    observe(target, options) {
      if (target.matches(PLACES) && !("near" in target.dataset)) {
        draws.set(target, this.draw);
        watcher.observe(target);
      }
      super.observe(target, options);
    }
  };

  // The browser prints when this event's microtasks are done. What a click changes is drawn by React in one of them, but
  // for the frame that Streamlit waits for, and plotly needs a few more.
  const TURNS = 50;
  const prepare = async () => {
    const button = document.createElement("button"), nextFrame = window.requestAnimationFrame;
    button.addEventListener("click", () => {
      window.requestAnimationFrame = (draw) => draw(performance.now());
      for (const place of document.querySelectorAll(`${PLACES}:not([data-near])`)) {
        show(place);
        draws.get(place)?.();
      }
      window.requestAnimationFrame = nextFrame;
    });
    button.click();
    for (let turn = 0; turn < TURNS; turn++) await null;
    for (const svg of document.querySelectorAll(".main-svg")) {
      svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
    }
  };
  addEventListener("beforeprint", prepare);
  matchMedia("print").addEventListener("change", ({matches}) => {
    if (!matches) document.querySelectorAll(".main-svg").forEach((svg) => svg.removeAttribute("viewBox"));
  });
})();
