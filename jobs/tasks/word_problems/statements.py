"""What a text states: equations, calculations without a result, and numbers that are merely named, by sentence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from exgrpo.jobs.tasks.word_problems.expressions import Binary, Expression, MalformedError, Number, parse_expression
from exgrpo.jobs.tasks.word_problems.tokens import Kind, Token, read_tokens

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


MAX_WORDS_BEFORE_OPERAND = 2
MAX_WORDS_BEFORE_OPERATOR = 5
MAX_WORDS_AFTER_VERB = 4

_OPERANDS = frozenset({Kind.NUMBER, Kind.LETTER, Kind.CLOSE})
_ARTICLES = frozenset("aAI")
_NAMING = frozenset({"let", "call", "with", "say", "variable"})


@dataclass(frozen=True, slots=True)
class Equation:
    """Two or more sides that are stated to be equal; a side in words only is left out."""

    sides: tuple[Expression, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Calculation:
    """An expression without its value, such as `(14 times 6)`."""

    expression: Binary
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Mention:
    """A number that a sentence names."""

    value: Fraction
    start: int
    end: int


Statement = Equation | Calculation | Mention


def read_sentences(text: str) -> list[list[Statement]]:
    """Return the statements of each sentence that has any, in order."""
    tokens = read_words(read_tokens(text))
    return _Reader(tokens).read()


def find_unknowns(tokens: Sequence[Token]) -> frozenset[str]:
    """Return the letters that are unknowns: named as such, or standing by themselves next to a sign.

    A letter behind a number is a unit (12 h, 5g) unless it is an unknown elsewhere.
    """
    unknowns = set()
    signs = {Kind.OPERATOR, Kind.EQUALS}
    for index, token in enumerate(tokens):
        if token.kind is not Kind.LETTER:
            continue
        before = tokens[index - 1] if index else None
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        follows_number = before is not None and before.kind in {Kind.NUMBER, Kind.CLOSE}
        is_beside_sign = (before is not None and before.kind in signs) or (after is not None and after.kind in signs)
        is_named = before is not None and before.text in _NAMING
        if token.text in _ARTICLES:
            is_beside_sign = (before is not None and before.kind is Kind.OPERATOR) or (
                after is not None and after.kind in signs
            )
        if not follows_number and (is_beside_sign or is_named):
            unknowns.add(token.text)
    return frozenset(unknowns)


class _Reader:
    """Goes over the tokens once and collects runs that are expressions, linked by equals signs."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.unknowns = find_unknowns(tokens)
        self.closing = _matching_brackets(tokens)
        self.sentences: list[list[Statement]] = [[]]
        self.sides: list[tuple[list[Token], bool]] = []
        self.run: list[Token] = []
        self.depth = 0
        self.num_words = 0
        self.is_incomplete = False

    def read(self) -> list[list[Statement]]:
        handlers: dict[Kind, Callable[[int, Token], None]] = {
            Kind.NUMBER: self._operand,
            Kind.LETTER: self._letter,
            Kind.OPERATOR: self._operator,
            Kind.OPEN: self._open,
            Kind.CLOSE: self._close,
            Kind.EQUALS: self._end_side,
            Kind.SAYS: self._says,
            Kind.WORD: self._word,
            Kind.BREAK: self._end_equation,
            Kind.END: self._end_sentence,
        }
        for index, token in enumerate(self.tokens):
            handlers[token.kind](index, token)
        self._end_equation()
        return [sentence for sentence in self.sentences if sentence]

    def _letter(self, index: int, token: Token) -> None:
        if token.text in self.unknowns:
            self._operand(index, token)
        else:
            self._word(index, token)

    def _says(self, index: int, token: Token) -> None:
        if self._is_equation(index):
            self._end_side(index, token)
        else:
            self._word(index, token)

    def _end_sentence(self, _index: int, _token: Token) -> None:
        self._end_equation()
        if self.sentences[-1]:
            self.sentences.append([])

    def _operand(self, _index: int, token: Token) -> None:
        if self.run and self.run[-1].kind in _OPERANDS:
            is_product = token.kind is Kind.LETTER and token.is_glued and self.num_words == 0
            if not is_product:
                self._end_equation()
            else:
                self.run.append(Token(Kind.OPERATOR, "implicit", token.start, token.start))
        self.run.append(token)
        self.num_words = 0

    def _operator(self, index: int, token: Token) -> None:
        follows = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
        if self.run and self.run[-1].kind in _OPERANDS:
            self.run.append(token)
        elif token.text == "-" and follows is not None and follows.kind is Kind.NUMBER and follows.is_glued:
            self.run.append(Token(Kind.OPERATOR, "negative", token.start, token.end))
        elif not self.run and not (token.text == "-" and self._is_calculation(index + 1)):
            # An operand in words, as in "price * 4 = 20".
            self.is_incomplete = True
        self.num_words = 0

    def _open(self, index: int, token: Token) -> None:
        before = self.run[-1].kind if self.run else None
        if before in _OPERANDS and token.is_glued and self.num_words == 0:
            self.run.append(Token(Kind.OPERATOR, "implicit", token.start, token.start))
        elif before in _OPERANDS or not (self.run or self._is_factor(index)):
            self._end_equation()
            return
        self.run.append(token)
        self.depth += 1
        self.num_words = 0

    def _close(self, _index: int, token: Token) -> None:
        if self.depth == 0:
            self._end_equation()
            return
        if self.run[-1].kind is Kind.OPERATOR:
            self.run.pop()
        self.run.append(token)
        self.depth -= 1

    def _word(self, _index: int = 0, _token: Token | None = None) -> None:
        self.num_words += 1
        if not self.run:
            return
        is_open = self.run[-1].kind not in _OPERANDS
        if is_open and self.num_words > MAX_WORDS_BEFORE_OPERAND:
            self.is_incomplete = True
            self._end_equation()
        elif self.num_words > MAX_WORDS_BEFORE_OPERATOR:
            self._end_equation()

    def _is_equation(self, index: int) -> bool:
        """Return whether the verb at `index` joins a calculation with a number or expression."""
        if self.run[-1:] and self.run[-1].kind in _OPERANDS and any(t.kind is Kind.OPERATOR for t in self.run):
            for token in self.tokens[index + 1 : index + 2 + MAX_WORDS_AFTER_VERB]:
                if token.kind in {Kind.NUMBER, Kind.OPEN}:
                    return True
                if token.kind not in {Kind.WORD, Kind.SAYS, Kind.LETTER}:
                    return False
        return False

    def _is_calculation(self, index: int) -> bool:
        """Return whether a calculation begins at `index`, so that a stroke before it is a dash."""
        ahead = self.tokens[index : index + 4]
        return bool(ahead) and ahead[0].kind is Kind.NUMBER and any(t.kind is Kind.OPERATOR for t in ahead[1:])

    def _is_factor(self, index: int) -> bool:
        """Return whether the bracket that opens at `index` is a part of an expression and no aside."""
        if self.sides:
            return True
        closing = self.closing.get(index, len(self.tokens)) + 1
        follows = self.tokens[closing] if closing < len(self.tokens) else None
        return follows is not None and follows.kind in {Kind.OPERATOR, Kind.OPEN, Kind.EQUALS}

    def _end_side(self, _index: int, token: Token) -> None:
        is_label = self.is_incomplete or not self.run or self.depth > 0 or self.run[-1].kind not in _OPERANDS
        self.sides.append((self.run or [token], is_label))
        self.run, self.depth, self.num_words, self.is_incomplete = [], 0, 0, False

    def _end_equation(self, _index: int = 0, _token: Token | None = None) -> None:
        if self.run:
            self._end_side(0, self.run[-1])
        sides, self.sides = self.sides, []
        self.num_words, self.is_incomplete, self.depth = 0, False, 0
        expressions = []
        for run, is_label in sides:
            try:
                expressions += [] if is_label else [parse_expression(run)]
            except MalformedError:
                continue
        if not expressions:
            return
        start, end = sides[0][0][0].start, sides[-1][0][-1].end
        statement = _statement(tuple(expressions), start, end)
        if statement is not None:
            self.sentences[-1].append(statement)


def _statement(sides: tuple[Expression, ...], start: int, end: int) -> Statement | None:
    if len(sides) > 1:
        return Equation(sides, start, end)
    if isinstance(sides[0], Number):
        return Mention(sides[0].value, start, end)
    return Calculation(sides[0], start, end) if isinstance(sides[0], Binary) else None


def _matching_brackets(tokens: Sequence[Token]) -> dict[int, int]:
    opened: list[int] = []
    closing = {}
    for index, token in enumerate(tokens):
        if token.kind is Kind.OPEN:
            opened.append(index)
        elif token.kind is Kind.CLOSE and opened:
            closing[opened.pop()] = index
    return closing
