"""The parser-based check beside the rules: a Markdown parser reads fences, Python's parser their content."""

import ast
import warnings
from dataclasses import dataclass

from markdown_it import MarkdownIt

MAX_CHARS = 200_000
"""Of longer texts only the beginning is parsed: parsers may take long on hostile texts."""
_PYTHON_LABELS = frozenset({"python", "python3", "py"})
_PROMPTS = (">>> ", "... ")
_MARKDOWN = MarkdownIt("zero").enable(["fence"])


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
