// Writes the window of a chart that was zoomed into the address, from which the server draws the page's charts alike.
(() => {
  const watched = new WeakSet();
  const write = (window) => {
    const url = new URL(location.href);
    if ((url.searchParams.get("zoom") ?? "") === window) return;
    if (window) url.searchParams.set("zoom", window);
    else url.searchParams.delete("zoom");
    history.pushState(history.state, "", url.href);
    dispatchEvent(new PopStateEvent("popstate"));
  };
  const watch = (plot) => {
    watched.add(plot);
    plot.on("plotly_relayout", (change) => {
      const ends = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (change["xaxis.autorange"]) write("");
      else if (ends.every(Number.isFinite)) write(ends.map((end) => Number(end.toPrecision(5))).join(","));
    });
  };
  addEventListener("pointerover", ({target}) => {
    const plot = target.closest?.(".js-plotly-plot");
    if (plot?.on && plot.layout?.meta?.sharesZoom && !watched.has(plot)) watch(plot);
  }, true);
})();
