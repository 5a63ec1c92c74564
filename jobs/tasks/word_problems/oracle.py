r"""The oracle: reads the chain of thought of a response to a story, checks every step and names the first wrong one.

A chain is valid if its last box holds the answer, every step is true, every number of a step is one of the story, of
its units or an earlier result, and the steps together compute the answer whatever the story's numbers are. A sentence
may do one operation in the head by naming its result. The time is linear in the length of the response.
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from exgrpo.jobs.tasks.word_problems.expressions import (
    Letters,
    MalformedError,
    NotComputableError,
    Reading,
    evaluate,
    parse_formula,
)
from exgrpo.jobs.tasks.word_problems.known_numbers import KnownNumbers
from exgrpo.jobs.tasks.word_problems.problem import StoryProblem
from exgrpo.jobs.tasks.word_problems.statements import Calculation, Equation, Mention, read_sentences
from exgrpo.jobs.tasks.word_problems.walk import Fault, FaultKind, Walk

MAX_CHARS = 20_000
"""Longer responses are not read."""
MAX_BOX_CHARS = 200

_BOX = re.compile(r"\\boxed[ \t]*\{")
CODE_FENCE = "```"
MAX_LINES = 60
Block = tuple[int, str]
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,40})\s*([-+*/]?)=\s*([^=].*)")
_PRINT = re.compile(r"print\((.*)\)")
_SILENT = re.compile(r"#|$|python|import\b")


class ChainVerdict(StrEnum):
    """What the oracle says of a chain of thought."""

    VALID = "valid"
    INVALID = "invalid"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class StoryJudgement:
    """What is true of one response.

    `first_fault` is of an invalid chain: the kind of fault, and the characters of the first wrong step.
    """

    is_correct: bool
    verdict: ChainVerdict
    has_box: bool
    has_code: bool
    first_fault: Fault | None = None

    @property
    def is_valid(self) -> bool | None:
        """Whether the chain is valid; None if it cannot be read."""
        return None if self.verdict is ChainVerdict.UNREADABLE else self.verdict is ChainVerdict.VALID


@dataclass(frozen=True, slots=True)
class Box:
    """A boxed answer at characters `start` to `end`; `value` is None if it is no number."""

    value: Fraction | None
    start: int
    end: int


def judge_response(problem: StoryProblem, text: str) -> StoryJudgement:
    """Read a response: the last box is its answer, the rest its chain of thought."""
    if len(text) > MAX_CHARS:
        return StoryJudgement(False, ChainVerdict.UNREADABLE, False, CODE_FENCE in text)
    boxes = find_boxes(text)
    box = boxes[-1] if boxes else None
    is_correct = box is not None and box.value == problem.answer.value
    judgement = StoryJudgement(is_correct, ChainVerdict.UNREADABLE, bool(boxes), CODE_FENCE in text)
    prose, blocks = split_code(_without_boxes(text, boxes))
    walk = Walk(problem)
    walk.read_all(read_sentences(prose))
    code_fault = walk_code(problem, blocks)
    if walk.num_steps == 0 and not blocks:
        return judgement
    fault = _first([walk.fault, code_fault]) or _check_answer(walk, box, len(text))
    if fault is None:
        return replace(judgement, verdict=ChainVerdict.VALID)
    return replace(judgement, verdict=ChainVerdict.INVALID, first_fault=fault)


def find_boxes(text: str) -> list[Box]:
    r"""Return the boxes of a text, in order; `\boxed{\$34.50}` and `\boxed{x = 8 \text{ cows}}` hold numbers."""
    boxes = []
    for match in _BOX.finditer(text):
        end = _closing_brace(text, match.end())
        boxes.append(Box(_read_box(text[match.end() : end]), match.start(), min(len(text), end + 1)))
    return boxes


def _closing_brace(text: str, start: int) -> int:
    """Return where the brace that was opened before `start` closes, at most `MAX_BOX_CHARS` on."""
    depth = 1
    end = min(len(text), start + MAX_BOX_CHARS)
    for position in range(start, end):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return end


def _read_box(content: str) -> Fraction | None:
    statements = [item for sentence in read_sentences(content) for item in sentence]
    match statements:
        case [Mention(value)]:
            return value
        case [Calculation(expression)] | [Equation([*_, expression])]:
            try:
                return evaluate(expression, lambda _: frozenset(), {}).value
            except NotComputableError:
                return None
        case _:
            return None


def _without_boxes(text: str, boxes: list[Box]) -> str:
    parts = []
    position = 0
    for box in boxes:
        if box.start >= position:
            parts += [text[position : box.start], " " * (box.end - box.start)]
            position = box.end
    return "".join([*parts, text[position:]])


def _check_answer(walk: Walk, box: Box | None, end: int) -> Fault | None:
    """Return what is wrong with the answer of a chain whose steps are true; without any, it comes from code alone."""
    if box is None or box.value is None or walk.num_steps == 0:
        return walk.first_stray or Fault(FaultKind.NO_ANSWER, box.start if box else end, box.end if box else end)
    return walk.check_answer(box.value, (box.start, box.end))


def _first(faults: list[Fault | None]) -> Fault | None:
    return min((fault for fault in faults if fault is not None), key=lambda fault: fault.start, default=None)


def split_code(text: str) -> tuple[str, list[Block]]:
    """Return the text with blanks in place of its code blocks, and the blocks with where they begin."""
    parts = text.split(CODE_FENCE)
    prose = []
    blocks = []
    position = 0
    for index, part in enumerate(parts):
        if index % 2:
            blocks.append((position, part))
            prose.append(re.sub(r"[^\n]", " ", part))
        else:
            prose.append(part)
        position += len(part) + len(CODE_FENCE)
    return (" " * len(CODE_FENCE)).join(prose), blocks


def walk_code(problem: StoryProblem, blocks: list[Block]) -> Fault | None:
    """Return the first fault of code that can be read: a wrong line, or a print of something else than the answer.

    What has other lines than assignments and prints is not read and has no fault.
    """
    for position, source in blocks:
        try:
            fault = _walk_block(problem, position, source)
        except (MalformedError, NotComputableError):
            continue
        if fault is not None:
            return fault
    return None


def _walk_block(problem: StoryProblem, position: int, source: str) -> Fault | None:
    numbers = KnownNumbers(problem)
    names: Letters = {}
    stray: Fault | None = None
    printed: tuple[Reading, Fault] | None = None
    lines = source.split("\n")
    if len(lines) > MAX_LINES:
        raise MalformedError
    for line in lines:
        span = (position, position + len(line))
        position += len(line) + 1
        if _SILENT.match(line.strip()):
            continue
        reading, is_print = _run_line(line.strip(), numbers, names)
        if reading.missing:
            return Fault(FaultKind.FROM_NOWHERE, *span)
        is_stray = not reading.fingerprints & problem.meaningful_fingerprints
        stray = stray or (Fault(FaultKind.OTHER_COMPUTATION, *span) if is_stray else None)
        if is_print:
            printed = (reading, Fault(FaultKind.OTHER_COMPUTATION, *span))
    if printed is None or problem.answer.fingerprint in printed[0].fingerprints:
        return None
    return stray or printed[1]


def _run_line(line: str, numbers: KnownNumbers, names: Letters) -> tuple[Reading, bool]:
    printing = _PRINT.fullmatch(line)
    if printing is not None:
        return evaluate(parse_formula(printing[1]), numbers.lookup, names), True
    assignment = _ASSIGNMENT.fullmatch(line)
    if assignment is None:
        raise MalformedError
    name, operator, source = assignment.groups()
    formula = f"{name} {operator} ({source})" if operator else source
    names[name] = evaluate(parse_formula(formula), numbers.lookup, names)
    return names[name], False
