// The part of plotly.js that the pages' charts need: its core without the components that no figure has.
import "plotly.js/src/version";
import "plotly.js/build/plotcss";
import Registry from "plotly.js/src/registry";
import api from "plotly.js/src/plot_api";
import scatter from "plotly.js/lib/scatter";
import bar from "plotly.js/lib/bar";
import box from "plotly.js/lib/box";
import heatmap from "plotly.js/lib/heatmap";
import sankey from "plotly.js/lib/sankey";
import annotations from "plotly.js/src/components/annotations";
import shapes from "plotly.js/src/components/shapes";
import sliders from "plotly.js/src/components/sliders";
import errorbars from "plotly.js/src/components/errorbars";
import colorscale from "plotly.js/src/components/colorscale";
import colorbar from "plotly.js/src/components/colorbar";
import legend from "plotly.js/src/components/legend";
import fx from "plotly.js/src/components/fx";
import modebar from "plotly.js/src/components/modebar";
import locale from "plotly.js/src/locale-en";
import localeUs from "plotly.js/src/locale-en-us";
import plots from "plotly.js/src/plots/plots";

for (const [name, fn] of Object.entries(api)) Registry.register({moduleType: "apiMethod", name, fn});
Registry.register(scatter);
// The legend after the shapes, the labels under the pointer after the legend: each reads the one before.
Registry.register([annotations, shapes, sliders, errorbars, colorscale, colorbar, legend, fx, modebar]);
Registry.register([locale, localeUs, bar, box, heatmap, sankey]);

globalThis.Plotly = {...api, Plots: plots};
