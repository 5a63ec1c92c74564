r"""Other ways to read two answers, which are tried if they differ as they are written."""

import re
from collections.abc import Iterator

from exgrpo.jobs.tasks.grading.number_words import with_digits
from exgrpo.jobs.tasks.grading.plain_text import TEXT_COMMAND

_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), sign)
    for pattern, sign in (
        (
            r"(?:there (?:is|are) )?no (?:real )?(?:solutions?|roots?|answers?)(?: exists?)?"
            r"|(?:the )?(?:empty|null) set|none|\\emptyset|\\varnothing|∅|\\\{\s*\\\}",
            r"\emptyset",
        ),
        (
            r"(?:the )?(?:set of )?(?:all )?(?:the )?(?:reals|real numbers)|\\mathbb\s*\{?R\}?|\u211d",
            r"(-\infty,\infty)",
        ),
        (r"infinity|infinite(?:ly many)?(?: solutions?)?", r"\infty"),
        (r"DNE|(?:the limit )?does not exist", "DNE"),
    )
)
_AROUND = r"(?:\\text\s*\{[^{}\d]*\}|[^\d,;()\[\]{}])*"
"""A sign, a currency or a unit around a number that is the whole answer."""
_NUMBER = re.compile(
    rf"(?P<before>{_AROUND})(?:(?P<whole>[1-9]\d{{0,2}}(?:\.\d{{3}}){{2,}}|[1-9]\d{{0,2}}(?:(?:'|\\?_)\d{{3}})+"
    r"|[1-9]\d?(?:,\d{2})+,\d{3}|[1-9]\d{0,2}(?:\.\d{3})+(?=,)|\d{4,}(?=,\d\d?(?!\d)))(?:,(?P<rest>\d+))?)"
    rf"(?P<after>{_AROUND}(?:\^\{{?[23]\}}?)?)"
)
_BUILDER = re.compile(
    r"\\?\{\s*(?P<name>[a-z])\s*(?:\\in\s*(?:\\mathbb\s*\{?R\}?|\u211d)\s*)?(?:\\mid|\||:|\\vert|\\colon)(?P<rule>.*?)\\?\}"
)
_RELATION = re.compile(r"[<>=\u2264\u2265\u2260]|\\(?:[lg]e|[lg]eq|[lg]t|neq?|in)(?![a-z])")
_MEMBER = re.compile(r"^\s*[a-z]\s*\\in\s*(?=[\[(\]])")
_TURNED = re.compile(r"(?P<left>[(\[\]])(?P<low>[^()\[\],;]+)[,;](?P<high>[^()\[\],;]+)(?P<right>[)\]\[])")
_VECTOR = re.compile(r"\\begin\{[pb]?matrix\}((?:(?!&.*\\\\|\\\\.*&).)*)\\end\{[pb]?matrix\}", re.DOTALL)
_CASES = re.compile(r"\\begin\{cases\}(.*)\\end\{cases\}", re.DOTALL)
_PERCENT = re.compile(
    r"(-?)(\d*)\s*\\[dt]?frac\s*\{?(\d+?)\}?\s*\{?(\d+)\}?\s*(?:\\?%|(?:\\text\s*\{)?\s*percent\s*\}?)"
)
_NAMED = re.compile(
    r"(?:[A-Za-z]'*(?:\^\{-1\})?\([^()=]*\)|\\frac\{d[a-z]?\}\{d[a-z]\}|\\frac\{d\w?\}\{d\w\}|[A-Za-z])\s*=(?P<value>[^=]+)"
)
_ROMAN = re.compile(r"(?<![A-Za-z])X{0,3}(?:IX|IV|V?I{0,3})(?![A-Za-z])")


def other_readings(gold: str, answer: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each reading that changes at least one of two answers, with both."""
    are_matrices = all("matrix}" in text for text in (gold, answer))
    for name, read in _READINGS.items():
        pair = read(gold), read(answer)
        if pair != (gold, answer) and not (are_matrices and read is _with_tuples):
            yield name, *pair
    for pair in _values(gold, answer):
        yield "the right side of an equation", *pair


def _with_signs(text: str) -> str:
    """Return `no solution`, `all real numbers` and the like as signs."""
    words = " ".join(re.sub(TEXT_COMMAND, r"\1", text).split()).strip(" .")
    return next((sign for pattern, sign in _PHRASES if pattern.fullmatch(words)), text)


def _with_points(text: str) -> str:
    """Return a number written as in another country, such as `1.234.567,89`, as digits with a point."""
    if not (number := _NUMBER.fullmatch(text.strip())):
        return text
    whole = re.sub(r"\D", "", number["whole"])
    return f"{number['before']}{whole}{'.' + number['rest'] if number['rest'] else ''}{number['after']}"


def _with_plain_sets(text: str) -> str:
    r"""Return `\{x \mid x > 3\}` as its rule, and `]1;2]` as `(1,2]`."""
    text = _MEMBER.sub("", text)
    builder = _BUILDER.fullmatch(text.strip())
    if builder and _RELATION.search(builder["rule"]):
        return re.sub(rf"(?<![A-Za-z\\]){builder['name']}(?![A-Za-z])", "x", builder["rule"]).strip()
    return _TURNED.sub(
        lambda match: (
            f"{match['left'].replace(']', '(')}{match['low']},{match['high']}{match['right'].replace('[', ')')}"
        ),
        text,
    )


def _with_matrices(text: str) -> str:
    """Return `[[1,2],[3,4]]` as a matrix."""
    if not re.fullmatch(r"\s*\[\s*(?:\[[^\[\]]+\]\s*,?\s*){2,}\]\s*", text):
        return text
    rows = r" \\ ".join(row.replace(",", "&") for row in re.findall(r"\[([^\[\]]+)\]", text))
    return rf"\begin{{pmatrix}}{rows}\end{{pmatrix}}"


def _with_tuples(text: str) -> str:
    """Return a vector as a tuple, and the values of several variables in the order of their names."""
    text = re.sub(r"\\langle(?![a-z])", "(", re.sub(r"\\rangle(?![a-z])", ")", text))
    text = _VECTOR.sub(lambda match: "(" + re.sub(r"&|\\\\", ", ", match[1]) + ")", text)
    text = _CASES.sub(lambda match: re.sub(r"\\\\", ", ", match[1].replace("&", "")), text)
    values = re.split(r",|\\text\s*\{\s*and\s*\}|\band\b", text)
    are_named = len(values) > 1 and all(re.match(r"\s*[a-z]\s*=[^=]+$", value) for value in values)
    return ", ".join(sorted(value.strip() for value in values)) if are_named else text


def _with_both_signs(text: str) -> str:
    r"""Return `\frac{1\pm\sqrt5}{2}` as its two values."""
    parts = re.split(r"\\(?:pm|mp)(?![a-z])|±", re.sub(r"^\s*[a-z](?:_\{?\w\}?)?\s*=", "", text))
    return f"{parts[0]}+{parts[1]}, {parts[0]}-{parts[1]}" if len(parts) == 2 and "," not in text else text


def _with_percents(text: str) -> str:
    r"""Return `33\frac13\%` as a fraction, which Math-Verify reads."""
    return _PERCENT.sub(
        lambda match: (
            rf"{match[1]}\frac{{{int(match[2] or 0) * int(match[4]) + int(match[3])}}}{{{100 * int(match[4])}}}"
        ),
        text,
    )


def _with_arabic(text: str) -> str:
    """Return Roman numerals of two letters or more in digits."""
    values = {"I": 1, "V": 5, "X": 10}

    def as_digits(match: re.Match[str]) -> str:
        signs = [values[sign] for sign in match[0]]
        return str(sum(-one if one < next_one else one for one, next_one in zip(signs, [*signs[1:], 0], strict=True)))

    return _ROMAN.sub(lambda match: as_digits(match) if len(match[0]) > 1 else match[0], text)


def _with_ratios(text: str) -> str:
    return re.sub(r"^\s*(\d+)\s*(?:\\text\s*\{\s*)?to\s*\}?\s*(\d+)\s*$", r"\1:\2", text)


_READINGS = {
    "numbers in words": with_digits,
    "signs in words, such as `no solution`": _with_signs,
    "numbers written as in other countries": _with_points,
    "sets and intervals": _with_plain_sets,
    "lists of rows as matrices": _with_matrices,
    "vectors as tuples, and values by their names": _with_tuples,
    "both signs of a value": _with_both_signs,
    "percentages of fractions": _with_percents,
    "Roman numerals": _with_arabic,
    "ratios in words": _with_ratios,
}


def _values(gold: str, answer: str) -> Iterator[tuple[str, str]]:
    """Yield the right side of `f(3) = 7` where the other answer has no left one, and those of `f(x) =` and `y =`."""
    named = [_NAMED.fullmatch(text.strip()) for text in (gold, answer)]
    sides = [text.split("=")[0].strip() if "=" in text else "" for text in (gold, answer)]
    is_graph = "y" in sides and any(re.fullmatch(r"[A-Za-z]\(x\)", side) for side in sides)
    if any(named) and (is_graph or not all(sides)):
        left, right = (match["value"] if match else text for match, text in zip(named, (gold, answer), strict=True))
        yield left, right
