(async () => {
  const packed = Uint8Array.from(atob("PACKED"), (letter) => letter.charCodeAt(0));
  const source = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const script = document.createElement("script");
  script.textContent = source;
  document.head.append(script);
  const draw = (element) => {
    const figure = JSON.parse(element.querySelector("script").textContent);
    const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
    Plotly.newPlot(element, { ...figure, config: options });
  };
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((each) => each.isIntersecting)) {
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px" });
  document.querySelectorAll("[data-chart]").forEach((element) => near.observe(element));
})();
