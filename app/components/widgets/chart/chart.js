// Draws a chart of `app.components.widgets.chart` when its place comes near the window, or when the page is printed.
// It stays the same chart when its figure changes, so that zoom, hidden curves and what is under the pointer stay.
const NEAR = "600px", MARGIN = 8, CLOSED = "fullscreenchange";
const REMOVED = ["toImage", "select2d", "lasso2d", "autoScale2d"];
const WHOLE_WINDOW = {
  name: "Whole window", icon: {width: 24, height: 24, path: "M4 4h6v2H6v4H4zM14 4h6v6h-2V6h-4zM4 14h2v4h4v2H4zM18 14h2v6h-6v-2h4z"},
  click: (plot) => document.fullscreenElement ? document.exitFullscreen() : plot.parentElement.requestFullscreen(),
};
const charts = new WeakMap(), waiting = new Map();
const watcher = new IntersectionObserver((changes) => {
  for (const {isIntersecting, target} of changes) if (isIntersecting) waiting.get(target)?.draw();
}, {rootMargin: NEAR, scrollMargin: NEAR});

/** Write the window of a chart that was zoomed into the address, from which the server draws the page's charts alike. */
const share = (window) => {
  const url = new URL(location.href);
  if ((url.searchParams.get("zoom") ?? "") === window) return;
  if (window) url.searchParams.set("zoom", window);
  else url.searchParams.delete("zoom");
  history.pushState(history.state, "", url.href);
  dispatchEvent(new PopStateEvent("popstate"));
};

/** Move the box of values into the window: with many curves it is higher than its chart. */
const keepInside = (plot) => {
  const box = plot.querySelector(".hoverlayer .legend");
  if (!box) return;
  const {top, bottom, left, right} = box.getBoundingClientRect();
  const inside = (low, high, size) => Math.max(MARGIN - low, Math.min(0, size - MARGIN - high));
  box.style.translate = `${inside(left, right, innerWidth)}px ${inside(top, bottom, innerHeight)}px`;
};

class Chart {
  constructor(parent) {
    this.frame = Object.assign(document.createElement("div"), {className: "chart", role: "figure"});
    this.plot = document.createElement("div");
    this.frame.append(this.plot);
    parent.append(this.frame);
    this.resized = new ResizeObserver(() => this.isDrawn && this.frame.offsetWidth && this.fit());
    this.resized.observe(this.frame);
    waiting.set(this.frame, this);
    watcher.observe(this.frame);
    addEventListener("pointerup", this.released = () => setTimeout(() => {
      this.isHeld = false;
      if (this.isLate) this.draw();
    }));
    this.plot.addEventListener("pointerdown", () => { this.isHeld = true; }, true);
  }

  update(text) {
    if (text === this.text) return;
    this.text = text;
    const {alt, hasTools, figure} = JSON.parse(text);
    Object.assign(this, {figure, hasTools});
    this.frame.ariaLabel = alt;
    if (this.isDrawn) this.draw();
  }

  draw() {
    this.isLate = this.isHeld; // a zoom that has begun ends first
    if (this.isLate) return;
    const {data, layout} = this.figure, isFirst = !this.isDrawn;
    const tools = {modeBarButtonsToRemove: REMOVED, modeBarButtonsToAdd: [WHOLE_WINDOW]};
    this.isDrawn = true;
    waiting.delete(this.frame);
    watcher.unobserve(this.frame);
    Plotly.react(this.plot, data, {...layout, ...this.size()}, {
      displaylogo: false, displayModeBar: this.hasTools, doubleClick: "autosize", ...tools,
    });
    if (isFirst) this.listen();
  }

  size() {
    const {offsetWidth: width, offsetHeight: height} = this.frame;
    return {width, height: document.fullscreenElement === this.frame ? height : this.figure.layout.height};
  }

  fit() {
    const {width, height} = this.size(), {layout} = this.plot;
    if (width !== layout.width || height !== layout.height) Plotly.relayout(this.plot, {width, height});
  }

  listen() {
    this.plot.on("plotly_hover", () => keepInside(this.plot));
    this.plot.on("plotly_relayout", (change) => {
      if (!this.plot.layout.meta?.sharesZoom) return;
      const ends = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (change["xaxis.autorange"]) share("");
      else if (ends.every(Number.isFinite)) share(ends.map((end) => Number(end.toPrecision(5))).join(","));
    });
  }

  remove() {
    removeEventListener("pointerup", this.released);
    this.resized.disconnect();
    watcher.unobserve(this.frame);
    waiting.delete(this.frame);
    Plotly.purge(this.plot);
    this.frame.remove();
  }
}

addEventListener("beforeprint", () => {
  for (const chart of [...waiting.values()]) chart.draw();
  for (const svg of document.querySelectorAll(".chart .main-svg")) {
    svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`);
  }
});
matchMedia("print").addEventListener("change", ({matches}) => {
  if (!matches) document.querySelectorAll(".chart .main-svg").forEach((svg) => svg.removeAttribute("viewBox"));
});

/** Streamlit calls it at first and after each change of the data, and what it returns when the chart goes. */
export default ({data, parentElement}) => {
  const chart = charts.get(parentElement) ?? new Chart(parentElement);
  charts.set(parentElement, chart);
  chart.update(new TextDecoder().decode(data));
  return () => {
    charts.delete(parentElement);
    chart.remove();
  };
};
