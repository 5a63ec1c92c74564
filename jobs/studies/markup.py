"""HTML and SVG as element trees: whatever text goes in comes out as text, never as markup."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, tostring

Child = Element | str

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may load for a page: nothing but the style inside it."""
STYLE = """
:root { color-scheme: light dark; --ink: #1a1c20; --soft: #5c636e; --line: #d5d9e0; --back: #ffffff; --mark: #1f5fbf;
  --warn: #8a4b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #a0a7b3; --line: #3a404a; --back: #14161a;
  --mark: #7fb0ff; --warn: #ffb65c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.87rem; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
td.number, th.number { text-align: right; }
.soft, figcaption { color: var(--soft); } .warn { color: var(--warn); }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; }
svg .axis { stroke: var(--line); } svg .base { stroke: var(--soft); stroke-dasharray: 4 3; fill: none; }
svg .seed { fill: var(--soft); fill-opacity: 0.5; stroke: none; } svg .mean { fill: var(--mark); }
svg .range { stroke: var(--mark); stroke-width: 2; }
svg .thin { stroke: var(--soft); stroke-opacity: 0.45; fill: none; }
svg .curve { stroke: var(--mark); stroke-width: 2; fill: none; } svg .soft { fill: var(--soft); }
"""


def element(tag: str, *children: Child, **attributes: str | float) -> Element:
    """Return an element; `class_` stands for `class`, and an underscore elsewhere for a hyphen."""
    own = {
        "class" if name == "class_" else name.replace("_", "-"): value if isinstance(value, str) else f"{value:g}"
        for name, value in attributes.items()
    }
    node = Element(tag, own)
    for child in children:
        if isinstance(child, Element):
            node.append(child)
        elif len(node):
            node[-1].tail = (node[-1].tail or "") + child
        else:
            node.text = (node.text or "") + child
    return node


def table(head: Sequence[str], rows: Sequence[Sequence[Child]], num_text_columns: int = 1) -> Element:
    """Return a table in a box that scrolls; all but its first columns hold numbers."""

    def cells(tag: str, values: Sequence[Child]) -> list[Element]:
        return [
            element(tag, value, **({"class_": "number"} if index >= num_text_columns else {}))
            for index, value in enumerate(values)
        ]

    body = [element("tr", *cells("td", row)) for row in rows]
    inner = element("table", element("thead", element("tr", *cells("th", head))), element("tbody", *body))
    return element("div", inner, class_="wide")


def section(title: str, *children: Child) -> Element:
    """Return a section of a page."""
    return element("section", element("h2", title), *children)


def page(title: str, *children: Child) -> str:
    """Return a whole HTML page that loads nothing from anywhere."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width"),
        element("title", title),
        element("style", STYLE),
    )
    root = element("html", head, element("body", element("h1", title), *children), lang="en")
    return "<!doctype html>\n" + tostring(root, encoding="unicode", method="html") + "\n"
