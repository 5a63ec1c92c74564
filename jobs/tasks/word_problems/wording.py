"""Numbers and operators in words: "twenty-four", "a third of", "twice", "divided by" become tokens as signs are."""

from collections.abc import Sequence
from fractions import Fraction

from exgrpo.jobs.tasks.word_problems.tokens import Kind, Token

_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBER_WORDS = {word: number for number, word in enumerate(_UNITS)} | {
    word: 10 * number for number, word in enumerate(_TENS, start=2)
}
MAX_HUNDREDS = 1_000_000
_SCALES = {"hundred": 100, "thousand": 1000}
_PARTS = {
    "half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fourths": 4,
    "fifth": 5, "fifths": 5, "sixth": 6, "sixths": 6, "eighth": 8, "eighths": 8, "tenth": 10, "tenths": 10,
}  # fmt: skip
_MULTIPLES = {
    "twice": 2, "double": 2, "doubled": 2, "doubling": 2, "thrice": 3, "triple": 3, "tripled": 3, "tripling": 3,
    "dozen": 12,
}  # fmt: skip
_OPERATORS = {"plus": "+", "minus": "-", "times": "*", "less": "-"}
_BY = {"divided": "/", "multiplied": "*"}
_DETERMINERS = frozenset(["the", "all", "those", "these", "his", "her", "their", "this", "that", "its"])


def read_words(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with numbers and operators that are written in words as numbers and operators."""
    read: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        number = _number_at(tokens, index) if token.kind is Kind.WORD else None
        if number is not None:
            value, index, is_share = number
            read.append(Token(Kind.NUMBER, token.text, token.start, tokens[index - 1].end, value, is_share))
            if token.text in _MULTIPLES and _is_number(tokens, index):
                read.append(Token(Kind.OPERATOR, "*", token.start, token.end))
            continue
        operator, length = _operator_at(tokens, index, read)
        if operator:
            last = tokens[index + length - 1]
            read.append(Token(Kind.OPERATOR, operator, token.start, last.end))
        else:
            read.append(token)
        index += max(1, length)
    return read


def _number_at(tokens: Sequence[Token], index: int) -> tuple[Fraction, int, bool] | None:
    """Return the number that words from `index` on name, the index behind them, and whether it is a share."""
    word = tokens[index].text
    if word in _MULTIPLES:
        return Fraction(_MULTIPLES[word]), index + 1, False
    if word in _PARTS and _is_part(tokens, index):
        return Fraction(1, _PARTS[word]), index + 1, True
    whole = _whole_at(tokens, index)
    if whole is None:
        return None
    value, behind = whole
    if behind < len(tokens) and tokens[behind].text in _PARTS:
        return Fraction(value, _PARTS[tokens[behind].text]), behind + 1, True
    # "one" alone is mostly no number: one of them, each one.
    return None if word == "one" and behind == index + 1 else (Fraction(value), behind, False)


def _is_part(tokens: Sequence[Token], index: int) -> bool:
    if tokens[index].text in {"half", "halves"}:
        return True
    before = tokens[index - 1].text if index else ""
    after = tokens[index + 1].text if index + 1 < len(tokens) else ""
    return before in {"a", "A", "one", "another"} or after == "of"


def _whole_at(tokens: Sequence[Token], index: int) -> tuple[int, int] | None:
    total = current = 0
    start = index
    while index < len(tokens):
        word = tokens[index].text if tokens[index].kind is Kind.WORD else ""
        parts = word.split("-")
        if word in NUMBER_WORDS and (current % 100 == 0 or (current % 10 == 0 and NUMBER_WORDS[word] < 10)):
            current += NUMBER_WORDS[word]
        elif len(parts) == 2 and parts[0] in _TENS and parts[1] in _UNITS:
            current += NUMBER_WORDS[parts[0]] + NUMBER_WORDS[parts[1]]
        elif word in _SCALES and index > start and current < MAX_HUNDREDS:
            total, current = (total + current * 1000, 0) if word == "thousand" else (total, current * 100)
        elif not (word == "and" and index > start and tokens[index - 1].text in _SCALES and _is_whole(tokens, index)):
            break
        index += 1
    return (total + current, index) if index > start else None


def _is_whole(tokens: Sequence[Token], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].text.partition("-")[0] in NUMBER_WORDS


def _operator_at(tokens: Sequence[Token], index: int, read: Sequence[Token]) -> tuple[str, int]:
    """Return the operator that words at `index` name, "" for none, and how many tokens they are."""
    token = tokens[index]
    follows = tokens[index + 1].text if index + 1 < len(tokens) else ""
    if token.kind is Kind.LETTER and token.text in "xX":
        is_between = bool(read) and read[-1].kind in {Kind.NUMBER, Kind.CLOSE, Kind.WORD}
        return ("*", 1) if is_between and _is_number(tokens, index + 1) else ("", 1)
    if token.kind is not Kind.WORD:
        return "", 1
    if token.text in _OPERATORS and _is_number(tokens, index + 1):
        return _OPERATORS[token.text], 1
    if token.text in _BY and follows == "by":
        return _BY[token.text], 2
    if token.text == "of" and read and (read[-1].is_share or read[-1].kind is Kind.CLOSE):
        behind = index + 1
        while behind < len(tokens) and behind < index + 3 and tokens[behind].text in _DETERMINERS:
            behind += 1
        return ("*", behind - index) if _is_number(tokens, behind) else ("", 1)
    return "", 1


def _is_number(tokens: Sequence[Token], index: int) -> bool:
    if index >= len(tokens):
        return False
    token = tokens[index]
    if token.kind in {Kind.NUMBER, Kind.OPEN}:
        return True
    return token.kind is Kind.WORD and token.text != "one" and _number_at(tokens, index) is not None
