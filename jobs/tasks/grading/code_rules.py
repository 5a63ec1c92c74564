"""R1 to R17: the paper's rules for code in free text (appendix "Snowball Effects", table of code-detection rules).

The paper gives cues in plain language and no patterns. These are anchored to whole lines and to Python's syntax,
because the literal cues ("if ...:", "for ... in ...") match a tenth to a quarter of ordinary solutions.
Without a fence, `lambda` and `s += 5` match no rule: the paper has no cue for them.
The time of each pattern is linear in the text.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt

_INDENT = r"^[ \t]*+(?:>>> )?+"
_COMMENT = r"[ \t]*(?:#[^\n]*)?$"
_NAME = r"[A-Za-z_]\w{0,60}"
_DOTTED = rf"{_NAME}(?:\.{_NAME}){{0,5}}"
_TARGET = rf"(?:{_NAME}|\({_NAME}(?:, ?{_NAME}){{1,4}}\))"
_TARGETS = rf"{_TARGET}(?:, ?{_TARGET}){{0,4}}"
_CONDITION = r"(?=[^\n]*(?:[<>=!]=|[<>%(]|\b(?:not|in|is|and|or|True|False)\b))[^\n$\\:]{1,200}"
_ASSIGNED = rf"{_INDENT}{_NAME} ?= ?"
_FENCE_LINE = re.compile(r"^[ \t]*+(?:```+([^`\n]*)|~~~+([^\n]*))$", re.MULTILINE)
_FENCES = ("```", "~~~")
MAX_CHARS = 200_000
"""Of longer texts only the beginning is parsed: parsers may take long on hostile texts."""
_PYTHON_LABELS = frozenset({"python", "python3", "py"})
_PROMPTS = (">>> ", "... ")
_MARKDOWN = MarkdownIt("zero").enable(["fence"])


@dataclass(frozen=True, slots=True)
class CodeRule:
    """One rule. `cue` is the paper's, `form` says where the pattern matches.

    Every match contains one of `needles`: most texts have none, and a search for them is much faster.
    """

    rule_id: str
    kind: str
    cue: str
    form: str
    pattern: re.Pattern[str]
    needles: tuple[str, ...]
    begins_fence: bool = False
    """Whether a match must begin right behind the opening line of an unlabelled fence."""

    def matches(self, text: str) -> bool:
        """Return whether the text matches the rule."""
        if self.begins_fence:
            return any(self.pattern.match(text, start) for start in _unlabelled_fences(text))
        return self.pattern.search(text) is not None


def _unlabelled_fences(text: str) -> Iterator[int]:
    """Yield where the content of each unlabelled fence begins; the line that ends a fence opens none."""
    is_open = False
    for fence in _FENCE_LINE.finditer(text):
        label = (fence[1] or fence[2] or "").strip()
        if not is_open and not label:
            yield fence.end()
        is_open = bool(label) if is_open else True


def _rules(*rows: tuple[str, str, str, str, tuple[str, ...]]) -> tuple[CodeRule, ...]:
    """Return R1, R2 and so on from (kind, cue, form, pattern, needles) each; R2 begins a fence."""
    return tuple(
        CodeRule(f"R{number}", kind, cue, form, re.compile(pattern, re.MULTILINE), needles, begins_fence=number == 2)
        for number, (kind, cue, form, pattern, needles) in enumerate(rows, start=1)
    )


CODE_RULES = _rules(
    ("structural", "fenced block labelled as Python", "anywhere",
     r"(?i:(?:```|~~~)[ \t]*(?:python3?|py)\b)", ("py", "Py", "PY")),
    ("structural", "unlabelled fence that begins with a Python keyword", "first non-empty line after the fence",
     r"\s*+(?:def|class|import|from|if|for|while|try|with)\b", ("```", "~~~")),
    ("syntax", "function definition", "whole line",
     rf"{_INDENT}(?:async )?def {_NAME}\([^\n]{{0,200}}\)[^\n:]{{0,60}}:", ("def ",)),
    ("syntax", "class definition", "whole line", rf"{_INDENT}class {_NAME}(?:\([^\n)]*\))?:{_COMMENT}", ("class ",)),
    ("syntax", "import statement", "whole line",
     rf"{_INDENT}import {_DOTTED}(?: as {_NAME})?(?:, ?{_DOTTED}(?: as {_NAME})?){{0,8}}{_COMMENT}", ("import ",)),
    ("syntax", "from ... import statement", "whole line",
     rf"{_INDENT}from \.?{_DOTTED} import (?:\*|\(?{_NAME}[\w, ]{{0,200}}\)?){_COMMENT}", (" import ",)),
    ("idiom", "print(...) call", "not inside a word", r"(?<![\w\\.$])print\(", ("print(",)),
    ("idiom", "len(...) call", "of a name, list or string", r"(?<![\w\\.$])len\([A-Za-z_\"'\[(]", ("len(",)),
    ("idiom", "range(...) call", "in a loop, as an argument, or assigned",
     rf"(?:\bfor {_TARGETS} in |[A-Za-z_]\(|{_ASSIGNED})range\(", ("range(",)),
    ("syntax", "for ... in ... loop header", "whole line, with its colon",
     rf"{_INDENT}(?:async )?for {_TARGETS} in [^\n$\\:]{{1,160}}:{_COMMENT}", ("for ",)),
    ("syntax", "if ...: header", "whole line", rf"{_INDENT}(?:if|elif) {_CONDITION}:{_COMMENT}", ("if ",)),
    ("syntax", "while ...: header", "whole line", rf"{_INDENT}while {_CONDITION}:{_COMMENT}", ("while ",)),
    ("syntax", "try: header", "whole line", rf"{_INDENT}try:{_COMMENT}", ("try:",)),
    ("syntax", "except ...: header", "whole line",
     rf"{_INDENT}except(?: \(?{_DOTTED}[\w., ]{{0,80}}\)?(?: as {_NAME})?)?:{_COMMENT}", ("except",)),
    ("syntax", "name assigned to a list", "whole line, or open at its end",
     rf"{_ASSIGNED}\[(?:[^\n\\$]*\]{_COMMENT}|[ \t]*$)", ("= [", "=[")),
    ("syntax", "name assigned to a dictionary", "whole line, or open at its end",
     rf"{_ASSIGNED}\{{(?:[ \t]*\}}{_COMMENT}|[ \t]*$|[ \t]*[\w\"'.]+ ?: ?[^\n\\$]*)", ("= {", "={")),
    ("idiom", "dotted call", "begins its line, or is assigned or passed on there",
     rf"{_INDENT}(?:[\w, ]{{1,60}} ?= ?)?(?:{_NAME}\(){{0,3}}[a-z_]\w{{0,60}}(?:\.{_NAME}){{1,5}}\(", ("(",)),
)  # fmt: skip
_NEEDLE_INDEX = tuple((needle, index) for index, rule in enumerate(CODE_RULES) for needle in rule.needles)
"""One flat list: a million texts are searched, and a call for each rule would take as long as the search."""


def find_rules(text: str) -> tuple[str, ...]:
    """Return the ids of the rules that the text matches, in order."""
    possible = {item for needle, item in _NEEDLE_INDEX if needle in text}
    rules = (CODE_RULES[entry] for entry in sorted(possible))
    return tuple(rule.rule_id for rule in rules if rule.matches(text))


_BITS = {rule.rule_id: 1 << index for index, rule in enumerate(CODE_RULES)}


def mark_code(rows: Iterable[MutableMapping[str, Any]]) -> None:
    """Add `code_rules` and `has_python_block` to trajectories by their text.

    If the task does not say whether a response has code, the rules decide.
    """
    for row in rows:
        text = row["text"]
        row["code_rules"] = rules_to_bits(find_rules(text))
        row["has_python_block"] = any(fence in text for fence in _FENCES) and has_python_block(text)
        if row["has_code"] is None:
            row["has_code"] = row["code_rules"] > 0


def rules_to_bits(rule_ids: Iterable[str]) -> int:
    """Return the rules as one number: the first bit is R1."""
    return sum(_BITS[rule_id] for rule_id in rule_ids)


def bits_to_rules(bits: int) -> tuple[str, ...]:
    """Return the ids of the rules in a number, in order."""
    return tuple(rule_id for rule_id, bit in _BITS.items() if bits & bit)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One fenced block: its label (may be empty), its content, and whether the content is Python with an effect."""

    label: str
    source: str
    is_python: bool


def find_code_blocks(text: str) -> list[CodeBlock]:
    """Return every fenced block of the text, in order."""
    tokens = _MARKDOWN.parse(text[:MAX_CHARS])
    fences = [(_label(token.info), token.content) for token in tokens if token.type == "fence"]
    return [CodeBlock(label, source, is_python(source)) for label, source in fences]


def has_python_block(text: str) -> bool:
    """Return whether a fence is labelled Python, or has no label and contains Python."""
    blocks = find_code_blocks(text)
    return any(block.label in _PYTHON_LABELS or (not block.label and block.is_python) for block in blocks)


def is_python(source: str) -> bool:
    """Return whether the source parses as Python, prompts aside, and does something: imports, calls, binds."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(_session_input(source) if source.startswith(_PROMPTS[0]) else source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return any(not isinstance(line, ast.Expr) or isinstance(line.value, ast.Call | ast.Await) for line in body)


def _session_input(source: str) -> str:
    """Return what was typed in an interactive session, without prompts and output."""
    return "\n".join(line[len(_PROMPTS[0]) :] for line in source.splitlines() if line.startswith(_PROMPTS))


def _label(info: str) -> str:
    words = info.lower().replace("{", " ").replace("}", " ").split()
    return words[0] if words else ""
