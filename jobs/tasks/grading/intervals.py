r"""Inequalities of one variable as intervals: `x < 2 or x > 3` is `(-\infty,2)\cup(3,\infty)`."""

import re

_SET = re.compile(r"\\cup|[\[(][^,()\[\]]+,[^,()\[\]]+[\])]")
_ORDER = re.compile(r"(<|>|\\(?:leqslant|leq|le|lt|geqslant|geq|ge|gt|neq?)(?![a-z]))")
_COMMANDS = re.compile(r"\\(?:infty|d?frac|pi|sqrt)(?![a-z])")
_ABSOLUTE = re.compile(
    r"\s*(?:\\left)?(?:\||\\l?vert)\s*([a-z])\s*(?:\\right)?(?:\||\\r?vert)\s*"
    r"(<|>|\\[lg](?:e|eq|eqslant|t)(?![a-z]))\s*((?:[\d.]|\\(?:d?frac|sqrt|pi)(?![a-z])|[{}])+)\s*"
)
_OR = re.compile(r"\\text\{\s*or\s*\}|\\(?:lor|vee)(?![a-z])|\bor\b")
_AND = re.compile(r"\\text\{\s*and\s*\}|\\(?:land|wedge)(?![a-z])|\band\b")
_STRICT = {"<", ">", r"\lt", r"\gt"}


def with_intervals(gold: str, answer: str) -> tuple[str, str]:
    """Return two answers with their inequalities as intervals where both are sets of one variable, else unchanged."""
    read = [_read(text) for text in (gold, answer)]
    if all(read):
        (variable, left), (other, right) = (found for found in read if found)
        return (left, right) if variable == other else (gold, answer)
    return _with_interval(gold, read[0], answer), _with_interval(answer, read[1], gold)


def _with_interval(text: str, read: tuple[str, str] | None, other: str) -> str:
    is_set = _SET.search(other) and r"\in" not in other.replace(r"\infty", "")
    return read[1] if read and is_set else text


def _read(text: str) -> tuple[str, str] | None:
    """Return the variable of inequalities and their intervals, None of any other text."""
    if not _ORDER.search(text):
        return None
    text = text if (match := _ABSOLUTE.fullmatch(text)) is None else _without_bars(*match.groups())
    intervals = [_interval(part) for part in _OR.split(text)]
    variables = {found[0] for found in intervals if found}
    if None in intervals or len(variables) != 1:
        return None
    return variables.pop(), r"\cup ".join(found[1] for found in intervals if found)


def _interval(text: str) -> tuple[str, str] | None:
    """Return `x < 2`, `1 < x < 2` or `x > 1 and x < 2` as a variable and an interval, None where it is neither."""
    bounds: dict[bool, tuple[str, bool]] = {}
    found = set()
    clauses = [clause for part in _AND.split(text) for clause in _clauses(part)]
    if len(clauses) == 1 and clauses[0][2].startswith(r"\ne"):
        variable, value, _ = clauses[0]
        return variable, rf"(-\infty,{value})\cup ({value},\infty)"
    for variable, value, order in clauses:
        is_upper = "<" in order or order.startswith(r"\l")
        if is_upper in bounds or not value or order.startswith(r"\ne"):
            return None
        bounds[is_upper] = value, order in _STRICT
        found.add(variable)
    if len(found) != 1:
        return None
    low, is_left_open = bounds.get(False, (r"-\infty", True))
    high, is_right_open = bounds.get(True, (r"\infty", True))
    return found.pop(), f"{'(' if is_left_open else '['}{low},{high}{')' if is_right_open else ']'}"


def _without_bars(variable: str, order: str, value: str) -> str:
    """Return `|x| < 2` as `-2 < x < 2`, and `|x| > 2` as `x < -2 or x > 2`."""
    if "<" in order or order.startswith(r"\l"):
        return f"-{value} {order} {variable} {order} {value}"
    return f"{variable} {_turned(order)} -{value} or {variable} {order} {value}"


def _clauses(text: str) -> list[tuple[str, str, str]]:
    """Return each bound of a chain such as `1 < x < 2`: variable, value, and the sign between them in this order."""
    parts = [part.strip() for part in _ORDER.split(text)]
    numbers, orders = parts[::2], parts[1::2]
    variables = [index for index, part in enumerate(numbers) if re.fullmatch("[a-z]", part)]
    others = [_COMMANDS.sub("", part) for index, part in enumerate(numbers) if index not in variables]
    is_bound = len(variables) == 1 and 2 <= len(numbers) <= 3 and all(others)
    if not is_bound or any(re.search("[A-Za-z,]", part) for part in others) or (len(numbers) == 3 and variables != [1]):
        return [("", "", "")]
    place = variables[0]
    before = [(numbers[place], numbers[place - 1], _turned(orders[place - 1]))] if place else []
    after = [(numbers[place], numbers[place + 1], orders[place])] if place < len(orders) else []
    return before + after


def _turned(order: str) -> str:
    """Return the sign of the same order with its sides exchanged."""
    pairs = [("<", ">"), (r"\l", r"\g"), (r"\g", r"\l"), (">", "<")]
    return next((other + order[len(sign) :] for sign, other in pairs if order.startswith(sign)), order)
