"""Trajectories and snowball cases as text: Markdown and LaTeX in the paper's layout, or JSON for a program."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import to_json

from exgrpo.db.rows.chains_of_thought import CaseResponse, SnowballCase
from exgrpo.db.rows.display_names import escape_control_characters

_VERDICTS = {True: "valid", False: "invalid", None: "not judged"}
_TILDES = re.compile("~+")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is quoted of a run: a title, a sentence on where it is from, and texts under headings."""

    title: str
    origin: str
    texts: tuple[tuple[str, str], ...]


def cases_as_json(name: str, cases: Sequence[SnowballCase]) -> str:
    """Return a set of cases as one JSON object."""
    return to_json({"case_set": name, "cases": cases}, indent=2, inf_nan_mode="null").decode()


def excerpts_of(cases: Sequence[SnowballCase]) -> list[Excerpt]:
    """Return cases as the paper prints them: question, gold answer, low- and high-entropy response."""
    return [
        Excerpt(
            f"Case {number}",
            f"Run {case.run_id}, {case.steps}, question {case.question_index}.",
            (
                ("Question", case.question),
                ("Gold answer", case.truth),
                *((_heading(end, response), response.text) for end, response in case.responses.items()),
            ),
        )
        for number, case in enumerate(cases, start=1)
    ]


def as_markdown(title: str, excerpts: Sequence[Excerpt]) -> str:
    """Return excerpts under a title; their texts are not changed."""
    parts = [f"# {' '.join(title.split())}"]
    for excerpt in excerpts:
        parts += [f"## {excerpt.title}", excerpt.origin]
        parts += [f"**{heading}**\n\n{_fenced(text)}" for heading, text in excerpt.texts]
    return "\n\n".join(parts) + "\n"


def as_latex(excerpts: Sequence[Excerpt]) -> str:
    r"""Return excerpts for `\input`, without any package; of their texts no character is a command."""
    lines = ["% Characters that pdflatex lacks are written as [U+...]."]
    for excerpt in excerpts:
        lines.append(rf"\paragraph{{{latex(excerpt.title)}.}} {latex(excerpt.origin)}")
        for heading, text in excerpt.texts:
            body = "\\\\{}\n".join(latex(line) or r"\mbox{}" for line in text.split("\n"))
            lines.append(
                f"\\begin{{quote}}\\small\\textbf{{{latex(heading)}}}\\\\{{}}\n"
                f"{{\\ttfamily\\raggedright {body}\\par}}\n\\end{{quote}}"
            )
    return "\n".join(lines) + "\n"


_COMMANDS = {
    **{character: f"\\{character}" for character in "#$%&_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\char96{}", "\u2013": "--", "\u2014": "---",
    "\u2018": r"\char96{}", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2026": r"\ldots{}", "\u00a0": "~",
} | {
    character: rf"\ensuremath{{{command}}}"
    for character, command in {
        "\u00d7": r"\times", "\u00f7": r"\div", "\u00b1": r"\pm", "\u00b7": r"\cdot", "\u2212": "-", "\u2264": r"\le",
        "\u2265": r"\ge", "\u2260": r"\ne", "\u2248": r"\approx", "\u2192": r"\to", "\u21d2": r"\Rightarrow",
        "\u221e": r"\infty", "\u221a": r"\surd", "\u03c0": r"\pi", "\u03b8": r"\theta", "\u03b1": r"\alpha",
        "\u03b2": r"\beta", "\u0394": r"\Delta", "\u2208": r"\in", "\u00b0": r"^\circ", "\u00b2": "^2", "\u00b3": "^3",
        "\u22c5": r"\cdot", "\u2022": r"\bullet",
    }.items()
}  # fmt: skip
_LETTERS = frozenset("ÀÁÂÃÄÅÇÈÉÊËÌÍÎÏÑÒÓÔÕÖÙÚÛÜÝàáâãäåçèéêëìíîïñòóôõöùúûüýÿßæøåÆØÅ")
"""Those beyond ASCII that pdflatex has in its default encoding."""
_LONGEST_WORD = 40


def latex(line: str) -> str:
    """Return one line of text in which no character is a command, and which can be broken anywhere."""
    shown = escape_control_characters(line.expandtabs(4))
    written, word = [], 0
    for place, character in enumerate(shown):
        is_kept = character == " " and (place == 0 or shown[place - 1] == " ")
        word = 0 if character == " " else word + 1
        if word and word % _LONGEST_WORD == 0:
            written.append(r"\allowbreak{}")
        written.append("~" if is_kept else _COMMANDS.get(character) or _plain(character))
    return "".join(written)


def _plain(character: str) -> str:
    return character if character.isascii() or character in _LETTERS else f"[U+{ord(character):04X}]"


def _heading(end: str, response: CaseResponse) -> str:
    code = {True: ", with code", False: ", without code", None: ""}[response.has_code]
    which = "Response, entropy" if end == "single" else f"Response of {end} entropy:"
    entropy = "not recorded" if response.entropy is None else f"{response.entropy:.4f} nats per token"
    return (
        f"{which} {entropy}, chain of thought {_VERDICTS[response.is_valid]}{code}, trajectory {response.trajectory_id}"
    )


def _fenced(text: str) -> str:
    fence = "~" * max(3, *(len(run) + 1 for run in _TILDES.findall(text)), 3)
    return f"{fence}\n{text}\n{fence}"
