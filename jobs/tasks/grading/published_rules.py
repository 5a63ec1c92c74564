"""Whether an answer equals the gold answer by the published rules. Runs inside the grading process."""

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import sympy
import yaml
from pylatexenc.latex2text import LatexNodes2Text

MAX_EXPONENT = 10_000
_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)|([a-zA-Z]+)|(\*\*|[-+*/^()!]))")
_FUNCTIONS: dict[str, Any] = {
    "sqrt": sympy.sqrt, "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec,
    "csc": sympy.csc, "log": sympy.log, "ln": sympy.log, "exp": sympy.exp, "asin": sympy.asin, "acos": sympy.acos,
    "atan": sympy.atan, "abs": sympy.Abs,
}  # fmt: skip
_CONSTANTS: dict[str, Any] = {"pi": sympy.pi, "inf": sympy.Symbol("inf")}


class ExpressionError(ValueError):
    """The text is no formula that this grammar knows."""


def read_expression(text: str) -> sympy.Expr:
    """Return the formula; letters side by side are multiplied, as are a number and what follows it.

    Raises:
        ExpressionError: It cannot be read.
    """
    reader = _Reader(_tokens(text))
    value = reader.sum()
    if reader.next:
        raise ExpressionError(f"unexpected {reader.next!r} after the end of the expression.")
    return value


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place = 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ExpressionError(f"{text[place : place + 20]!r} is no part of a formula.")
        name = match.group(2)
        # A name that is not known is single letters.
        is_whole = name is None or name in _FUNCTIONS or name in _CONSTANTS
        tokens += [match.group().strip()] if is_whole else list(name)
        place = match.end()
    return tokens


class _Reader:
    """Recursive descent: sum, product, sign, power, atom. Depth is the interpreter's limit, and so an error."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        token = self.next
        self._place += 1
        return token

    def sum(self) -> Any:  # noqa: ANN401 - sympy has no one type for what its operators return
        value = self._product()
        while self.next in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> Any:  # noqa: ANN401 - as above
        value = self._signed()
        while self.next and self.next not in ("+", "-", ")"):
            if self.next in ("*", "/"):
                value = value * self._signed() if self._take() == "*" else value / self._signed()
            else:
                value = value * self._power()
        return value

    def _signed(self) -> Any:  # noqa: ANN401 - as above
        if self.next in ("+", "-"):
            return self._signed() if self._take() == "+" else -self._signed()
        return self._power()

    def _power(self) -> Any:  # noqa: ANN401 - as above
        base = self._atom()
        if self.next == "!":
            raise ExpressionError("a factorial is not compared.")
        if self.next not in ("^", "**"):
            return base
        self._take()
        exponent = self._signed()
        if exponent.is_number and abs(exponent) > MAX_EXPONENT:
            raise ExpressionError("the power is too high.")
        return base**exponent

    def _atom(self) -> Any:  # noqa: ANN401 - as above
        token = self._take()
        if token == "(":
            value = self.sum()
            if self._take() != ")":
                raise ExpressionError("a parenthesis is open.")
            return value
        if token in _FUNCTIONS:
            return _FUNCTIONS[token](self._power())
        if token[:1].isdigit() or token.startswith("."):
            return sympy.Float(token) if {".", "e"} & set(token) else sympy.Integer(token)
        if token.isalpha():
            return _CONSTANTS.get(token, sympy.Symbol(token))
        raise ExpressionError(f"{token!r} is no value.")


LONG_CHARS = 128
REPEATED_SHARE = 0.2
MAX_LETTERS = 2
_BRACKETS = "()[]"
_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")
_POWERS_LEFT_ALONE = re.compile(r"\^\{|\^\(|\^[0-9]+\^|\^[0-9][0-9]+")
RULES_FILE = Path(__file__).with_name("published_rules.yaml")
_REPLACEMENTS = (("\n", ""), ("\\!", ""), ("\\\\", "\\"))
_SYNONYMS = (
    ("bmatrix", "pmatrix"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\neq", "\\ne"), ("\\leq", "\\le"),
    ("\\geq", "\\ge"), ("\\left", ""), ("\\right", ""),
)  # fmt: skip
_SIGNS = (("^{\\circ}", ""), ("^\\circ", ""), ("\\$", ""))
_SYMBOLS = (("√", "sqrt"), ("π", "pi"), ("∞", "inf"), ("\N{UNION}", "U"), ("·", "*"), ("\N{MULTIPLICATION SIGN}", "*"))
_WHOLE_TEXT = re.compile(r"^\\text\{(?P<text>.+?)\}$")
_WHOLE_TOLERANCE = 1e-7


def equals_by_published_rules(gold: str, answer: str, verify: Callable[[str, str], bool]) -> bool:
    """Return whether texts, numbers or formulas agree, or Math-Verify (`verify`) says so: the slow mode of the rules.

    Raises:
        RecursionError: The answer is nested too deeply.
        MemoryError: It takes too much memory.
    """
    if normalize_first(gold) == normalize_first(answer):
        return True
    second_gold, second_answer = normalize_second(gold), normalize_second(answer)
    if second_gold == second_answer or _parts_agree(second_gold, second_answer):
        return True
    if _repeats(answer) or _repeats(gold):
        return False
    return verify(_in_math(gold), _in_math(answer))


def _parts_agree(gold: str, answer: str) -> bool:
    if not answer:
        return False
    gold_parts, answer_parts = _split_tuple(gold), _split_tuple(answer)
    if len(gold_parts) != len(answer_parts):
        return False
    if len(gold_parts) > 1 and (gold[0] != answer[0] or gold[-1] != answer[-1]):
        return False
    pairs = list(zip(gold_parts, answer_parts, strict=True))
    return bool(pairs) and all(_part_agrees(*pair) for pair in pairs)


def _part_agrees(gold: str, answer: str) -> bool:
    if _FRACTION.search(gold) and _FRACTION.search(answer):
        return gold == answer  # a fraction has to be reduced
    if is_whole(gold) != is_whole(answer):
        return False  # a whole number has to be given as one
    return _formulas_agree(gold, answer)


def _formulas_agree(gold: str, answer: str) -> bool:
    both = f"({gold})-({answer})"
    letters = {letter for letter in both.replace("sqrt", "").replace("frac", "") if letter.isalpha()}
    if len(letters) > MAX_LETTERS or _POWERS_LEFT_ALONE.search(both):
        return False
    try:
        return bool(sympy.simplify(read_expression(both)) == 0)
    except RecursionError:
        raise
    except (ExpressionError, ArithmeticError, TypeError, ValueError, AttributeError, RuntimeError):
        return False  # what sympy raises on formulas without a value


def _split_tuple(text: str) -> list[str]:
    text = strip_thousands(text)
    if not text:
        return []
    is_tuple = len(text) > 2 and text[0] in _BRACKETS and text[-1] in _BRACKETS
    if is_tuple and not any(letter in _BRACKETS for letter in text[1:-1]):
        return [part.strip() for part in text[1:-1].split(",")]
    return [text]


def _repeats(text: str) -> bool:
    """Return whether a long text mostly repeats itself: common beginnings of neighbouring suffixes, over all pairs."""
    num_chars = len(text)
    if num_chars <= LONG_CHARS:
        return False
    suffixes = sorted(text[start:] for start in range(num_chars))
    shared = sum(_num_shared(left, right) for left, right in pairwise(suffixes))
    return shared * 2 / (num_chars * (num_chars + 1)) > REPEATED_SHARE


def _num_shared(left: str, right: str) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((item for item, (one, other) in pairs if one != other), min(len(left), len(right)))


def _in_math(text: str) -> str:
    return text if "$" in text else f"${text}$"


def normalize_first(answer: str) -> str:
    """Return the answer as the rules of MATH's authors rewrite it; what they cannot rewrite stays as it is."""
    text = answer.strip()
    whole = _WHOLE_TEXT.search(text)
    text = whole.group("text").strip() if whole else text
    try:
        return _rewrite(text)
    except (ValueError, IndexError):
        return text


def normalize_second(answer: str) -> str:
    """Return the answer as the rules of PRM800K's grader rewrite it."""
    whole = _WHOLE_TEXT.search(answer)
    text = whole.group("text") if whole else answer
    for old, new in (("\\%", "%"), ("\\$", "$"), ("$", ""), ("%", ""), (" or ", " , "), (" and ", " , ")):
        text = text.replace(old, new)
    for word, factor in _rules()["magnitudes"].items():
        text = text.replace(word, factor)
    for unit in _rules()["units"]:
        text = re.sub(unit + r"(es)?(s)? *(\^[0-9]+)?", "", text)
    text = re.sub(r"\^ *\\circ", "", text)
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = _as_whole(re.sub(r",\\! *", "", text))
    if "\\" in text:
        text = _without_latex(text)
    text = re.sub("- *", "-", text)
    text = re.sub("([0-9]) +([0-9])", r"\1+\2", text)  # a mixed number is a sum
    text = text.translate(str.maketrans("", "", " {}")).lower()
    return _as_whole(strip_thousands(text)) if is_whole(text) else text


def strip_thousands(text: str) -> str:
    """Return the text without commas that group digits by three."""
    while (shorter := re.sub(r"(\d)(,)(\d\d\d)($|\D)", r"\1\3\4", text)) != text:
        text = shorter
    return text


def is_whole(text: str) -> bool:
    """Return whether the text reads as a number that is whole, thousands grouped or not."""
    try:
        number = float(strip_thousands(text))
        return abs(number - round(number)) <= _WHOLE_TOLERANCE
    except (ValueError, OverflowError):
        return False


def _as_whole(text: str) -> str:
    """Return a number that is whole without its decimals, anything else as it is."""
    try:
        number = float(text)
        return str(round(number)) if abs(number - round(number)) <= _WHOLE_TOLERANCE else text
    except (ValueError, OverflowError):
        return text


def _without_latex(text: str) -> str:
    for old, new in (("\\tfrac", "\\frac"), ("\\dfrac", "\\frac"), ("\\frac", " \\frac")):
        text = text.replace(old, new)
    try:
        text = LatexNodes2Text().latex_to_text(text)
    except (ValueError, IndexError, AttributeError, TypeError):  # what its parser raises on broken LaTeX
        return text
    for old, new in _SYMBOLS:
        text = text.replace(old, new)
    return text.strip()


def _rewrite(text: str) -> str:
    for old, new in _REPLACEMENTS:
        text = text.replace(old, new)
    text = re.sub(r"\\begin\{array\}\{.*?\}", r"\\begin{pmatrix}", text)
    text = re.sub(r"\\end\{array\}", r"\\end{pmatrix}", text)
    for old, new in _SYNONYMS:
        text = text.replace(old, new)
    text = _without_words(re.sub(r"\\text{.*?}$", "", text).strip() or text)
    for old, new in _SIGNS:
        text = text.replace(old, new)
    if "\\text{ " in text:
        text, _ = text.split("\\text{ ")
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    text = "0" + text if text.startswith(".") else text
    name, equals, value = text.partition("=")
    if equals and "=" not in value and len(name) <= 2:
        text = value
    text = _brace_fractions(_brace_roots(text).replace(" ", ""))
    return _as_fraction("\\frac{1}{2}" if text == "0.5" else text)


def _without_words(text: str) -> str:
    """Return the text without units, as long as something is left of it."""
    for _ in range(2):
        for pattern in _word_patterns():
            text = pattern.sub(r"\1\2", text) or text
    return text


def _brace_roots(text: str) -> str:
    first, *rest = text.split("\\sqrt")
    return first + "".join(f"\\sqrt{part}" if part[0] == "{" else f"\\sqrt{{{part[0]}}}{part[1:]}" for part in rest)


def _brace_fractions(text: str) -> str:
    r"""Write `\frac12` and `\frac1{72}` with braces; a fraction cut short leaves all as it is."""
    first, *rest = text.split("\\frac")
    parts = [first]
    for part in rest:
        if part[0] == "{":
            parts.append(part)
        elif len(part) < 2:
            return text
        else:
            numerator, denominator, tail = part[0], part[1], part[2:]
            parts.append(f"{{{numerator}}}" + (part[1:] if denominator == "{" else f"{{{denominator}}}{tail}"))
    return "\\frac".join(parts)


def _as_fraction(text: str) -> str:
    match = re.fullmatch(r"(-?(?:0|[1-9]\d*))/(-?(?:0|[1-9]\d*))", text)
    return f"\\frac{{{match.group(1)}}}{{{match.group(2)}}}" if match else text


@cache
def _rules() -> dict[str, Any]:
    rules: dict[str, Any] = yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))
    return rules


@cache
def _word_patterns() -> tuple[re.Pattern[str], ...]:
    words = [str(word) for line in _rules()["words"] for word in line]
    # The published rules read the dots in these words as any character.
    return tuple(re.compile(rf"(^|\W){word}($|\W)") for word in [*words, *(word + "s" for word in words)])
