"""An answer's text as numbers and words, without the commands of LaTeX around them."""

import re
import unicodedata
from collections.abc import Sequence

MARKS = "$€£¥₹₩¢₽₺฿₫₪₦₱₴"
_CODES = f"[{MARKS}]|[A-Z]{{3}}|Rs|kr"
_DOLLARS = {"US": "$", "C": "CAD", "CA": "CAD", "CAD": "CAD", "A": "AUD", "AU": "AUD", "AUD": "AUD"} | {
    "NZ": "NZD", "HK": "HKD", "S": "SGD", "SG": "SGD", "NT": "TWD", "R": "BRL", "MX": "MXN",
}  # fmt: skip
_MAGNITUDES = tuple(
    (rf"(?<=[\d\s}}])(\\text\s*\{{\s*)?\b{name}s?\b", rf" \\times {value} \1")
    for name, value in {
        "tenth": "10^{-1}",
        "hundredth": "10^{-2}",
        "thousandth": "10^{-3}",
        "dozen": 12,
        "gross": 144,
        "hundred": 10**2,
        "thousand": 10**3,
        "lakh": 10**5,
        "million": 10**6,
        "crore": 10**7,
        "billion": 10**9,
        "trillion": 10**12,
        "quadrillion": 10**15,
    }.items()
)
SPACING = r"\\[,;:! ]|~|\\q?quad(?![A-Za-z])|\\(?:left|right)(?![A-Za-z])"
TEXT_COMMAND = r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|operatorname|rm)\s*\{([^{}]*)\}"
COMMA = re.compile(r",(?!\d{3}(?!\d))|\\text\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b")
"""What parts the items of a list, but no thousands."""
PLAIN = (
    (r"(?<!\\)\$([^$]*)(?<!\\)\$", r"\1"),
    (SPACING, " "),
    (r"\^\s*\{\s*(-?\d)\s*\}", r"^\1"),
    (TEXT_COMMAND, r" \1"),
    (r"\\([$])", r"\1"),
    (r"\{([:.])\}", r"\1"),
    (r"\^\s*\{?\s*\\circ\s*\}?|[°º]|\\degree(?![a-z])", " deg "),
    (r"\\mu\s*|\u03bc", "µ"),
    (r"\\Omega(?![a-z])", "Ω"),
    (r"\\[dt]?frac\s*\{\s*([A-Za-z][^{}]*)\}\s*\{\s*([A-Za-z][^{}]*)\}", r" \1/\2"),
    (r"(?<=\d)\s*(?:''|\")", " inch "),
    (r"(?<=\d)\s*'", " foot "),
    *_MAGNITUDES,
    (r"(?<=[A-Za-z])\.", ""),
    (r"\(s\)", "s"),
    (r"\(([A-Za-z][^()]*)\)\s*$", r" \1"),
    (r"^\s*(?:\\?[A-Za-z]+(?:\s*[A-Za-z])?(?:_\{?\w+\}?)?\s*(?:=|\\approx)|\\sim|\\approx|about|approximately)\s*", ""),
    *((rf"\b{dollar}\$", code) for dollar, code in _DOLLARS.items()),
    (rf"^\s*([-+]?)\s*({_CODES})\s*((?:[\d.,{{}}\s]*\d|\\[dt]?frac[\d{{}}]+)(?:\s*\\times 10+)?)", r"\1\3 \2"),
)
"""An answer's text as numbers and names of units, step by step."""
_MIXED = re.compile(r"(?<![\d.,/^])(\d+)(?:\s|\\[ ,]|~)+(\d+)/(\d+)(?![\d/])")
_AND_PART = re.compile(
    r"(?<![\d.,])(\d+)\s*(?:\\text\s*\{)?\s*and\s+(?:a|one)[\s-]+(half|third|quarter)\b\s*\}?", re.IGNORECASE
)
_PARTS = {"half": 2, "third": 3, "quarter": 4}
_DIRECTION = re.compile(
    r"(?<![\\\w-])(?:(?:to|towards?)\s+the\s+|due\s+)?(?P<name>(?i:(?:(?:north|south)[\s-]?)?(?:east|west)|north|south|up|down|"
    r"left|right|above|below|back|(?:for|in|out)(?=ward)|(?:counter-?|anti-?)?clock(?=wise))(?:wards?|wise|er?ly|ern)?"
    r"|[NSEW]?[NS][EW])(?![\w-])"
)
_LATITUDE = re.compile(r"((?:\\circ\s*\}?|°|\bdeg(?:rees?)?)\s*(?:\\(?:text|mathrm|rm)\s*\{)?\s*)([NSEW])(?![\w.])")
_LONE_WAY = re.compile(r"[-+]?[\d.,]+\s*(?:[a-z]+\s+)?([NSEW])")
_WAYS = {"N": " north", "S": " south", "E": " east", "W": " west", "above": "up", "below": "down"}


def with_mixed_numbers(text: str) -> str:
    r"""Return the text with numbers such as `2 3/4` as sums that Math-Verify reads."""
    text = _AND_PART.sub(lambda match: f"{match[1]} 1/{_PARTS[match[2].lower()]}", text)
    return _MIXED.sub(
        lambda match: rf"({match[1]}+\frac{{{match[2]}}}{{{match[3]}}})" if int(match[2]) < int(match[3]) else match[0],
        text,
    )


def with_magnitudes(text: str) -> str:
    """Return the text with numbers such as `5 million` as products."""
    return apply_steps(_MAGNITUDES, text)


def plain_words(text: str) -> str:
    """Return an answer's text as numbers and words, without the commands of LaTeX around them."""
    return apply_steps(PLAIN, with_plain_digits(text)).strip()


def with_plain_digits(text: str) -> str:
    """Return the text with raised and lowered digits as powers and indices: 10⁶ is `10^{6}`."""
    for pattern, mark in ((r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", "^"), ("[₀₁₂₃₄₅₆₇₈₉]+", "_")):
        for signs in sorted(set(re.findall(pattern, text)), key=len, reverse=True):
            text = text.replace(signs, f"{mark}{{{unicodedata.normalize('NFKC', signs)}}}".replace("\u2212", "-"))
    return text


def split_directions(text: str) -> tuple[str, list[str]]:
    """Return a text without its directions, and these: `5 km to the NE` is `5 km`, north and east."""
    text = _LATITUDE.sub(lambda match: match[1] + _WAYS[match[2]], text)
    found = [
        re.sub(r"[\s-]|wards?$|wise$|er?ly$|ern$", "", match["name"].lower()) for match in _DIRECTION.finditer(text)
    ]
    found = [
        re.sub("[nsew]", lambda sign: _WAYS[sign[0].upper()], name) if len(name) in {2, 3} else name for name in found
    ]
    words = " ".join(_WAYS.get(name, name.replace("anti", "counter")) for name in found)
    return _DIRECTION.sub(" ", text), re.findall("north|south|[a-z]+", words)


def have_other_ways(gold: str, answer: str) -> bool:
    """Return whether two numbers have different ones of N, S, E and W, be they directions or units."""
    ways = [_LONE_WAY.fullmatch(plain_words(text)) for text in (gold, answer)]
    return ways[0] is not None and ways[1] is not None and ways[0][1] != ways[1][1]


def apply_steps(steps: Sequence[tuple[str, str]], text: str) -> str:
    """Return the text after each pattern was replaced, in order."""
    for pattern, replacement in steps:
        text = re.sub(pattern, replacement, text)
    return text
