// Stands for parts of plotly.js that no figure of the pages reaches: each of its names is a function that does nothing.
module.exports = new Proxy({}, {get: () => () => {}});
