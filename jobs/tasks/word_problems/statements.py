"""What a text states: equations, calculations without a result, and numbers that are merely named, by sentence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from exgrpo.jobs.tasks.word_problems.expressions import Binary, Expression, MalformedError, Number, parse_expression
from exgrpo.jobs.tasks.word_problems.tokens import Kind, Token, read_tokens
from exgrpo.jobs.tasks.word_problems.wording import read_words

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
