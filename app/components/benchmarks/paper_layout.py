"""A table of scores as text in the paper's layout: LaTeX with booktabs, Markdown, and plain rows for CSV."""

from collections.abc import Callable, Sequence

from app.components.benchmarks.score_table import BLOCKS, COLUMNS, Score, ScoreLine
from app.components.widgets.exports import as_csv, latex, markdown

_DASH = "--"


def as_rows(lines: Sequence[ScoreLine]) -> list[dict[str, object]]:
    """Return one row per line: scores in percent with half of their 95% intervals, and their source."""
    rows = []
    for line in lines:
        row: dict[str, object] = {
            "Group": line.group,
            "Line": line.name,
            "From": "paper" if line.is_printed else "own",
        }
        for column in COLUMNS:
            score = line.scores.get(column)
            row[column] = None if score is None else round(score.value, 3)
            row[f"{column}, ± 95%"] = None if score is None else score.half_interval
        rows.append(row)
    return rows


def as_table_csv(lines: Sequence[ScoreLine]) -> str:
    """Return comma-separated values: scores in percent, each with half of its 95% interval."""
    return as_csv(as_rows(lines))


def as_table_markdown(lines: Sequence[ScoreLine]) -> str:
    """Return a pipe table with the best of each column bold and the second best underlined."""
    head = ["", *COLUMNS]
    rules = ["---", *["---:"] * len(COLUMNS)]
    texts = [head, rules]
    for group, members in grouped(lines):
        texts.append([f"**{markdown(group)}**", *[""] * len(COLUMNS)])
        texts += [
            [markdown(line.name), *(_markdown_cell(line.scores.get(column)) for column in COLUMNS)] for line in members
        ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in texts)


def as_table_latex(lines: Sequence[ScoreLine]) -> str:
    """Return a `tabular` as the paper's: groups as headings, the best bold, the second best underlined."""
    sizes = [len(block) for block in BLOCKS.values()]
    alignment = "l" + "".join("c" * (size - 1) + "|c" + ("|" if size != sizes[-1] else "") for size in sizes)
    blocks = ("In-Distribution", "Out-of-Distribution")
    spans = " & ".join(f"\\multicolumn{{{size}}}{{c}}{{{name}}}" for size, name in zip(sizes, blocks, strict=True))
    names = " & ".join(latex(column) for column in COLUMNS)
    parts = [
        "% needs \\usepackage{booktabs}\n",
        f"\\begin{{tabular}}{{{alignment}}}\n\\toprule\n & {spans} \\\\\n & {names} \\\\\n",
    ]
    for group, members in grouped(lines):
        parts.append(f"\\midrule\n\\multicolumn{{{len(COLUMNS) + 1}}}{{c}}{{\\textit{{{latex(group)}}}}} \\\\\n")
        for line in members:
            cells = " & ".join(_latex_cell(line.scores.get(column)) for column in COLUMNS)
            parts.append(f"{latex(line.name)} & {cells} \\\\\n")
    return "".join([*parts, "\\bottomrule\n\\end{tabular}\n"])


FORMATS: dict[str, tuple[str, str, Callable[[Sequence[ScoreLine]], str]]] = {
    "CSV": ("csv", "text/csv", as_table_csv),
    "Markdown": ("md", "text/markdown", as_table_markdown),
    "LaTeX": ("tex", "application/x-tex", as_table_latex),
}
"""As in `app.components.widgets.exports`, for lines of scores."""


def grouped(lines: Sequence[ScoreLine]) -> list[tuple[str, list[ScoreLine]]]:
    """Return the lines under their headings, in order; a heading repeats where another group separates its lines."""
    sections: list[tuple[str, list[ScoreLine]]] = []
    for line in lines:
        if not sections or sections[-1][0] != line.group:
            sections.append((line.group, []))
        sections[-1][1].append(line)
    return sections


def _markdown_cell(score: Score | None) -> str:
    if score is None:
        return _DASH
    error = "" if score.half_interval is None else f" ± {score.half_interval:.1f}"
    return {1: f"**{score.text}**", 2: f"<u>{score.text}</u>"}.get(score.rank, score.text) + error


def _latex_cell(score: Score | None) -> str:
    if score is None:
        return _DASH
    error = "" if score.half_interval is None else f"$_{{\\pm {score.half_interval:.1f}}}$"
    styled = {1: f"\\textbf{{{score.text}}}", 2: f"\\underline{{{score.text}}}"}
    return styled.get(score.rank, score.text) + error
