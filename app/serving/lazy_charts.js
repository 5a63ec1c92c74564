// Gives a chart its width, with which it is drawn, when its place is in the window or, in a quiet moment, near it.
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
  window.ResizeObserver = class extends ResizeObserver {
    observe(target, options) {
      if (target.matches(PLACES) && !("near" in target.dataset)) watcher.observe(target);
      super.observe(target, options);
    }
  };
})();
