"""The walk through the statements of a chain of thought: each is checked against the story and what came before."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from exgrpo.jobs.tasks.word_problems.expressions import (
    Binary,
    Expression,
    Letter,
    Letters,
    NotComputableError,
    Number,
    Reading,
    evaluate,
    leading_number,
    letters_of,
    numbers_of,
)
from exgrpo.jobs.tasks.word_problems.known_numbers import KnownNumbers, Span, assign_unknowns
from exgrpo.jobs.tasks.word_problems.problem import StoryProblem
from exgrpo.jobs.tasks.word_problems.statements import Calculation, Equation, Mention, Statement

MAX_ROUNDS = 3
"""How often a sentence is read: "50 - 27 = 23, because 3 * 9 = 27" explains its number later."""


class FaultKind(StrEnum):
    """What is wrong with a step."""

    FALSE = "false"
    """Its sides are not equal."""
    FROM_NOWHERE = "from_nowhere"
    """It uses a number that is neither given nor computed."""
    OTHER_COMPUTATION = "other_computation"
    """It is true, but computes something that the story does not ask for."""
    NO_ANSWER = "no_answer"
    """Nothing is boxed, or not what was computed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong step at characters `start` to `end`."""

    kind: FaultKind
    start: int
    end: int


class _NowhereError(Exception):
    """A step uses numbers that are not known yet."""

    def __init__(self, values: Sequence[Fraction]) -> None:
        super().__init__()
        self.values = values


class _FalseError(Exception):
    """The sides of a step differ."""


class Walk:
    """Reads sentence by sentence until the first fault."""

    def __init__(self, problem: StoryProblem, unknowns: Letters | None = None) -> None:
        self.problem = problem
        self.numbers = KnownNumbers(problem)
        self.unknowns = unknowns or {}
        self.defined: Letters = {}
        self.fault: Fault | None = None
        self.first_stray: Fault | None = None
        """The first step that is true but on no way to the answer."""
        self._steps: list[int] = []
        self._find = self.numbers.find

    @property
    def num_steps(self) -> int:
        """Steps that were checked, correct or wrong."""
        return len(self._steps)

    def read_all(self, sentences: Sequence[Sequence[Statement]]) -> None:
        """Read every sentence up to the first with a fault."""
        self.unknowns = assign_unknowns(self.problem, sentences)
        for sentence in sentences:
            self.read_sentence(sentence)

    def read_sentence(self, sentence: Sequence[Statement]) -> None:
        """Read the next sentence; after a fault nothing is read."""
        if self.fault is not None or self.numbers.is_full:
            return
        waiting: list[Statement] = list(sentence)
        faults: list[Fault] = []
        for number in range(MAX_ROUNDS):
            # What comes later in a sentence may explain a number, but nothing is worked out backwards in the head.
            self._find = self.numbers.find if number == 0 else self.numbers.lookup
            before = len(waiting)
            faults = [fault for fault in faults if fault.kind is FaultKind.FALSE]
            waiting = [item for item in waiting if not self._read(item, faults)]
            if not waiting or len(waiting) == before:
                break
        if faults:
            first = min(faults, key=lambda fault: fault.start)
            self._steps.append(first.start)
            stray = self.first_stray
            self.fault = stray if stray is not None and stray.start < first.start else first

    def check_answer(self, value: Fraction, span: Span) -> Fault | None:
        """Return what is wrong with the boxed answer, if anything is."""
        known = self.numbers.find(value)
        if self.problem.answer.fingerprint in known:
            return None
        if self.first_stray is not None:
            return self.first_stray
        kind = FaultKind.NO_ANSWER if known else FaultKind.FROM_NOWHERE
        return Fault(kind, *self.numbers.named.get(value, span))

    def _read(self, statement: Statement, faults: list[Fault]) -> bool:
        """Read one statement; return whether it needs no further reading."""
        span = (statement.start, statement.end)
        try:
            match statement:
                case Mention(value):
                    return self._mention(value, span)
                case Calculation(expression):
                    self._calculate(expression, span)
                case Equation(sides):
                    self._equate(sides, span)
        except _NowhereError as error:
            named = [self.numbers.named[value] for value in error.values if value in self.numbers.named]
            faults.append(Fault(FaultKind.FROM_NOWHERE, *min([*named, span])))
            return False
        except _FalseError:
            faults.append(Fault(FaultKind.FALSE, *span))
        except NotComputableError:
            return True
        self._steps.append(statement.start)
        return True

    def _mention(self, value: Fraction, span: Span) -> bool:
        if self.numbers.lookup(value):
            return True
        fingerprints = self._find(value)
        if not fingerprints:
            self.numbers.named.setdefault(value, span)
            return False
        self.numbers.record(value, fingerprints)
        self._steps.append(span[0])
        return True

    def _calculate(self, expression: Expression, span: Span) -> None:
        if letters_of(expression):
            raise NotComputableError
        reading = self._evaluate(expression)
        self._keep(reading, span)

    def _evaluate(self, expression: Expression) -> Reading:
        reading = evaluate(expression, self._find, self.unknowns | self.defined)
        if reading.missing:
            raise _NowhereError(reading.missing)
        return reading

    def _keep(self, reading: Reading, span: Span) -> None:
        self.numbers.record(reading.value, reading.fingerprints)
        if not reading.fingerprints & self.problem.meaningful_fingerprints and self.first_stray is None:
            self.first_stray = Fault(FaultKind.OTHER_COMPUTATION, *span)

    def _equate(self, sides: tuple[Expression, ...], span: Span) -> None:
        names = frozenset[str]().union(*(letters_of(side) for side in sides)) - self.defined.keys()
        if names:
            if not self._define(sides, span):
                self._balance(sides)
        elif all(isinstance(side, Number) for side in sides):
            self._convert([side.value for side in sides if isinstance(side, Number)])
        else:
            self._compute(sides, span)

    def _define(self, sides: tuple[Expression, ...], span: Span) -> bool:
        """Give a letter the value of a calculation, as in `T = 3 * 12 = 36`; return whether it is one."""
        first, *others = sides
        is_label = isinstance(first, Letter) and not any(letters_of(side) for side in others)
        if not is_label or not any(isinstance(side, Binary) for side in others):
            return False
        assert isinstance(first, Letter)
        self.defined[first.name] = self._compute(tuple(others), span)
        return True

    def _convert(self, values: Sequence[Fraction]) -> None:
        """Read `2 kg = 2000 g`: equal numbers, or one that follows from the other."""
        for value in values:
            fingerprints = self._find(value)
            if not fingerprints and value != values[0] and self.numbers.derive(value):
                raise _FalseError
            if not fingerprints:
                raise _NowhereError([value])
            self.numbers.record(value, fingerprints)

    def _compute(self, sides: tuple[Expression, ...], span: Span) -> Reading:
        """Check that the sides are equal and begin with what is known; return the last one's reading."""
        if isinstance(sides[0], Number) and sides[0].value in numbers_of(sides[1]):
            # 2 hours = 2 * 60 minutes
            sides = sides[1:]
        first, *others = sorted(sides[:2], key=lambda side: isinstance(side, Number))
        current = self._evaluate(first)
        for side in (*others, *sides[2:]):
            reading = evaluate(side, self.numbers.lookup, self.unknowns | self.defined)
            if reading.value == current.value:
                known = frozenset() if reading.missing else reading.fingerprints
                current = Reading(current.value, current.fingerprints | known)
            elif isinstance(side, Number) and _is_rounded(side.value, current.value):
                self.numbers.record(side.value, current.fingerprints)
            elif isinstance(side, Binary) and leading_number(side) == current.value:
                # 3 * 160 = 480 / 24 = 20: written on without a new line.
                self._keep(current, span)
                current = self._evaluate(side)
            else:
                raise _FalseError
        self._keep(current, span)
        return current

    def _balance(self, sides: tuple[Expression, ...]) -> None:
        """Check an equation with unknowns: true of the story, with numbers that follow by one operation each."""
        lookup = self.numbers.lookup
        readings = [evaluate(side, lookup, self.unknowns | self.defined) for side in sides]
        if any(reading.value != readings[0].value for reading in readings):
            raise _FalseError
        computations: dict[Fraction, frozenset[int]] = {}
        for side in sides:
            for value in numbers_of(side):
                known = lookup(value) or self.numbers.derive(value)
                if not known:
                    raise _NowhereError([value])
                computations[value] = known
        for value, fingerprints in computations.items():
            self.numbers.record(value, fingerprints)
        for side in sides:
            if isinstance(side, Letter):
                self.numbers.record(readings[0].value, self.unknowns[side.name].fingerprints)


def _is_rounded(written: Fraction, exact: Fraction) -> bool:
    decimals = 0
    while written.denominator != 1 and (written * 10**decimals).denominator != 1 and decimals < 6:
        decimals += 1
    return decimals > 0 and abs(written - exact) * 10**decimals <= Fraction(1, 2)
