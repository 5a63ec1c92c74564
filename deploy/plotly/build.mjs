// Writes the part of plotly.js that the pages' charts need, run by `make charts`. What no figure reaches is left out
// where it is worth a few kB, and so are the descriptions of attributes.
import {build} from "esbuild";
import {writeFileSync} from "node:fs";
import {fileURLToPath} from "node:url";
import {gzipSync} from "node:zlib";

const beside = (name) => fileURLToPath(new URL(name, import.meta.url));
const BUILT = beside("../../app/components/widgets/chart/plotly.min.js.gz");
const NOTICE = "/* Parts of plotly.js 4 (c) Plotly, Inc., D3 (c) Mike Bostock, culori (c) Dan Burzo: MIT, ISC and BSD-3-Clause */\n";
const INSTEAD = [
  [/^culori$/, "colours.mjs"],
  [/^@plotly\/d3-sankey$/, "node_modules/@plotly/d3-sankey/src/index.js"], // without the whole of what it imports
  [/^(polybooljs|@plotly\/d3-sankey-circular)$|\/components\/selections$/, "nothing.cjs"],
];
const STRING = '"(?:[^"\\\\]|\\\\.)*"';
const DESCRIPTIONS = new RegExp(`description:(?:${STRING}|\\[(?:${STRING},?)*\\]\\.join\\(${STRING}\\))`, "g");

const {outputFiles} = await build({
  entryPoints: [beside("plotly.mjs")],
  outfile: "plotly.js",
  write: false, // a style sheet of maps comes out too
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2020",
  legalComments: "none",
  define: {global: "window", "process.env.NODE_DEBUG": "false"},
  plugins: [{
    name: "instead",
    setup: ({onResolve}) => INSTEAD.forEach(([filter, name]) => onResolve({filter}, () => ({path: beside(name)}))),
  }],
  logLevel: "error",
});
const {text} = outputFiles.find(({path}) => path.endsWith(".js"));
writeFileSync(BUILT, gzipSync(NOTICE + text.replace(DESCRIPTIONS, "description:0"), {level: 9}));
