const isDark = matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const colours = getComputedStyle(document.documentElement);
  const [ink, line] = ["--ink", "--line"].map((name) => colours.getPropertyValue(name));
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true };
  const look = {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: ink, family: "system-ui, sans-serif" },
    margin: { l: 8, r: 8, t: 30, b: 8 }, showlegend: false, hovermode: "closest", xaxis: axis, yaxis: axis,
  };
  for (const box of document.querySelectorAll(".plot")) {
    const figure = JSON.parse(box.nextElementSibling.textContent);
    box.style.height = `${figure.layout.height}px`;
    const layout = { ...figure.layout, template: { layout: look } };
    Plotly.react(box, figure.data, layout, { responsive: true, displayModeBar: false });
  }
}
isDark.addEventListener("change", draw);
draw();
