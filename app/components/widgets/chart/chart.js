// Draws a chart of `exgrpo.app.components.widgets.chart` when its place comes near the window, or when the page is printed.
// It stays the same chart when its figure changes, so that zoom, hidden curves and what is under the pointer stay.
const NEAR = "600px", MARGIN = 8, DOUBLE_CLICK = 500;
const ROUNDING = 1e-6; // of a value at a tick, in ticks
const ROUNDS = 3; // a longer axis may have other ticks
const REMOVED = ["toImage", "select2d", "lasso2d", "autoScale2d"];
const WHOLE_WINDOW = {
  name: "Whole window", icon: {width: 24, height: 24, path: "M4 4h6v2H6v4H4zM14 4h6v6h-2V6h-4zM4 14h2v4h4v2H4zM18 14h2v6h-6v-2h4z"},
  click: (plot) => document.fullscreenElement ? document.exitFullscreen() : plot.parentElement.requestFullscreen(),
};
const PAPER = {width: 720, height: 420};
const charts = new WeakMap(), byKey = new Map(), waiting = new Map();
let themeAsked = null;
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

/** Open a step of the run of the address, in the tab that executes it again. */
const openStep = (step) => {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries({view: "Step", step})) url.searchParams.set(name, value);
  history.pushState(history.state, "", url.href);
  dispatchEvent(new PopStateEvent("popstate"));
};

/** Ask for the page again where charts have colours of the other theme, which a reader may change at any time. */
const followTheme = () => {
  const isDark = getComputedStyle(document.querySelector(".stApp")).colorScheme === "dark";
  const isOther = [...byKey.values()].some((chart) => chart.isDark !== isDark);
  if (isOther && themeAsked !== isDark) dispatchEvent(new PopStateEvent("popstate"));
  themeAsked = isOther ? isDark : null;
};
new MutationObserver(followTheme).observe(document.querySelector(".stApp"), {attributeFilter: ["class"]});

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
    const {key, alt, hasTools, isDark, figure} = JSON.parse(text);
    Object.assign(this, {key, figure, hasTools, isDark});
    byKey.set(key, this);
    followTheme();
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
      displaylogo: false, showSendToCloud: false, displayModeBar: this.hasTools && "hover", doubleClick: "autosize", doubleClickDelay: DOUBLE_CLICK, ...tools,
    });
    this.endAtTicks();
    if (isFirst) this.listen();
  }

  /** End the vertical axis at a tick beyond the highest value, and so at its lower end unless that is zero. */
  endAtTicks(rounds = ROUNDS) {
    const {_fullLayout: {yaxis}, _fullData: traces} = this.plot;
    if (yaxis?.type !== "linear" || yaxis.tickmode === "array" || !yaxis.autorange) return;
    const {dtick, range: [low, high]} = yaxis;
    const ofTrace = ({_extremes}) => [..._extremes?.y?.min ?? [], ..._extremes?.y?.max ?? []];
    const values = traces.flatMap(ofTrace).map(({val}) => val / dtick);
    const first = low && Math.floor(Math.min(...values) + ROUNDING), last = Math.ceil(Math.max(...values) - ROUNDING);
    if (!rounds || (first * dtick >= low && last * dtick <= high)) return;
    Plotly.relayout(this.plot, {"yaxis.autorangeoptions.include": [first * dtick, last * dtick]});
    this.endAtTicks(rounds - 1);
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
    this.plot.on("plotly_restyle", () => { // a curve was hidden or shown
      Plotly.relayout(this.plot, {"yaxis.autorangeoptions.include": null});
      this.endAtTicks();
    });
    this.plot.on("plotly_hover", () => keepInside(this.plot));
    // A tap shows values, and the first click of two resets the zoom.
    this.plot.on("plotly_click", ({points: [point]}) => {
      if (!this.plot.layout.meta?.opensStep || !matchMedia("(hover: hover)").matches) return;
      clearTimeout(this.opening);
      this.opening = setTimeout(openStep, DOUBLE_CLICK, Math.round(point.x));
    });
    this.plot.on("plotly_doubleclick", () => clearTimeout(this.opening));
    this.plot.on("plotly_relayout", (change) => {
      if (!this.plot.layout.meta?.sharesZoom) return;
      const ends = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (change["xaxis.autorange"]) share("");
      else if (ends.every(Number.isFinite)) share(ends.map((end) => Number(end.toPrecision(5))).join(","));
    });
  }

  remove() {
    clearTimeout(this.opening);
    removeEventListener("pointerup", this.released);
    this.resized.disconnect();
    watcher.unobserve(this.frame);
    waiting.delete(this.frame);
    if (byKey.get(this.key) === this) byKey.delete(this.key);
    Plotly.purge(this.plot);
    this.frame.remove();
  }
}

/** Return the figure as it is drawn now, for paper: whole, on white, with its title, unit and legend in it. */
const onPaper = (plot, {title, unit, colours}) => {
  const rgba = (colour) => `rgba(${[1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16)).join(",")},`;
  const isFlat = plot.data.some(({orientation}) => orientation === "h");
  const repaint = (value) => {
    if (typeof value === "string") {
      if (value in colours) return colours[value];
      const [from, to] = Object.entries(colours).find(([from]) => value.startsWith(rgba(from))) ?? [];
      return from ? value.replace(rgba(from), rgba(to)) : value;
    }
    if (!value || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
    for (const name of Object.keys(value)) value[name] = repaint(value[name]);
    return value;
  };
  const {data, layout} = repaint(structuredClone({data: plot.data, layout: plot.layout}));
  const named = isFlat ? "xaxis" : "yaxis", [first] = data, notes = unit.split("; ");
  if (first?.type !== "sankey" && first?.type !== "heatmap" && !layout[named]?.title?.text) {
    layout[named] = {...layout[named], title: {text: notes.shift(), font: layout.xaxis?.title?.font, standoff: 8}};
  }
  Object.assign(layout, {
    width: PAPER.width, height: PAPER.height, paper_bgcolor: "#fff", plot_bgcolor: "#fff",
    title: {text: title, x: 0.5, font: {size: 15}, subtitle: {text: notes.join("; "), font: {size: 12}}},
    margin: {l: 48, r: 24, t: 60, b: 16},
    font: {...layout.font, family: "Arial, Helvetica, sans-serif"},
  });
  if (data.length > 1) {
    layout.showlegend = true;
    layout.legend = {...layout.legend, x: 0.5, xanchor: "center", y: -0.2, yanchor: "top"};
  }
  return {data, layout};
};

const save = (address, name) => Object.assign(document.createElement("a"), {href: address, download: name}).click();

/** Print the figure alone, on a page of its size: the browser saves it as PDF, with lines and letters as such. */
const print = (svg) => {
  const page = Object.assign(document.createElement("div"), {id: "chart-on-paper"});
  const size = document.createElement("style");
  size.textContent = `@page { size: ${PAPER.width}px ${PAPER.height}px; margin: 0 }`;
  page.append(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, size);
  document.body.append(page);
  addEventListener("afterprint", () => page.remove(), {once: true});
  window.print();
};

const FILES = {
  PNG: async (figure, name) => save(await Plotly.toImage(figure, {...PAPER, format: "png", scale: 2}), `${name}.png`),
  SVG: async (figure, name) => save(await Plotly.toImage(figure, {...PAPER, format: "svg"}), `${name}.svg`),
  PDF: async (figure) => print(await Plotly.toImage(figure, {...PAPER, format: "svg", imageDataOnly: true})),
};

/** Show a button for each kind of file that a chart is saved as. */
const offer = (parent, given) => parent.replaceChildren(...Object.entries(FILES).map(([kind, make]) => {
  const button = Object.assign(document.createElement("button"), {textContent: kind, className: "chart-file"});
  if (kind === "PDF") button.title = "Opens the browser's print dialog; save as PDF there";
  button.addEventListener("click", () => {
    const chart = byKey.get(given.of);
    if (!chart.isDrawn) chart.draw();
    make(onPaper(chart.plot, given), given.name);
  });
  return button;
}));

addEventListener("beforeprint", () => {
  if (document.getElementById("chart-on-paper")) return;
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
  const text = new TextDecoder().decode(data);
  if (text.startsWith('{"of"')) return offer(parentElement, JSON.parse(text));
  const chart = charts.get(parentElement) ?? new Chart(parentElement);
  charts.set(parentElement, chart);
  chart.update(text);
  return () => {
    charts.delete(parentElement);
    chart.remove();
  };
};
