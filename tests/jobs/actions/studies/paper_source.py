"""Reads the tables of the paper's LaTeX source."""

import re
from dataclasses import dataclass, field

_TABULAR = re.compile(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", re.DOTALL)
_ENVIRONMENT_ENDS = (r"\\end\{(?:wrap)?table\*?\}", r"\\end\{figure\}")
_ENVIRONMENT_STARTS = (r"\\begin\{(?:wrap)?table\*?\}", r"\\begin\{figure\}")
_RULES = re.compile(r"\\(?:[a-z]*rule(?:\(lr\))?|rowhighlight|normalrow|innerrow)(?:\{[\d-]*\})?(?![a-z])")
_MULTIROW = re.compile(r"\\multirow\{[^}]*\}\{[^}]*\}")
_HEADING = re.compile(r"\\multicolumn\{\d+\}\{[a-z]\}\{(.*)\}", re.DOTALL)
_NUMBER = re.compile(r"[-+]?[\d.]+(?:%|GB)?")
_COMMANDS = re.compile(r"\\(?:textbf|textit|underline|mathrm|hookrightarrow)\b")


@dataclass(slots=True)
class SourceTable:
    """One tabular: the environment around it, and (group, row) with the cells behind them, as printed."""

    environment: str
    rows: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)


def plain(text: str) -> str:
    text = _COMMANDS.sub("", _MULTIROW.sub("", text)).replace(r"\%", "%").replace(r"\#", "#")
    text = re.sub(r"\\(rho|mu|sigma)", r"\1", text)
    return " ".join(text.translate(str.maketrans("~", " ", "{}$")).split())


def read_tables(source: str) -> list[SourceTable]:
    tables = []
    for match in _TABULAR.finditer(source):
        table = SourceTable(_environment(source, match.start(), match.end()))
        group = ""
        for line in match[1].split(r"\\"):
            cells = [_RULES.sub("", cell).strip() for cell in line.split("&")]
            heading = _HEADING.fullmatch(cells[0])
            if len(cells) == 1 and heading:
                group = plain(heading[1])
            elif any(_NUMBER.fullmatch(plain(cell)) for cell in cells[1:]):
                group, row, values = _row(cells, group)
                table.rows.append((group, row, values))
        tables.append(table)
    return tables


def _row(cells: list[str], group: str) -> tuple[str, str, tuple[str, ...]]:
    """Return a row with its group, which the table of overheads names in a first column of its own."""
    texts = [plain(cell) for cell in cells]
    if cells[0].startswith(r"\multirow") or not texts[0]:
        return texts[0] or group, texts[1], tuple(texts[2:])
    return group, texts[0], tuple(text for text in texts[1:] if text)


def _environment(source: str, start: int, end: int) -> str:
    begins = max(match.end() for match in re.finditer("|".join(_ENVIRONMENT_STARTS), source[:start]))
    ends = re.compile("|".join(_ENVIRONMENT_ENDS)).search(source, end)
    return source[begins : ends.start() if ends else None]
