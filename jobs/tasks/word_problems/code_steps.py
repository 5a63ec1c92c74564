"""Code in a response: assignments and prints are checked as steps are, but code is no chain of thought."""

import re

from jobs.tasks.word_problems.expressions import Letters, MalformedError, Reading, evaluate
from jobs.tasks.word_problems.formulas import parse_formula
from jobs.tasks.word_problems.known_numbers import KnownNumbers
from jobs.tasks.word_problems.problem import StoryProblem
from jobs.tasks.word_problems.quantity import NotComputableError
from jobs.tasks.word_problems.walk import Fault, FaultKind

CODE_FENCE = "```"
MAX_LINES = 60

Block = tuple[int, str]
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,40})\s*([-+*/]?)=\s*([^=].*)")
_PRINT = re.compile(r"print\((.*)\)")
_SILENT = re.compile(r"#|$|python|import\b")


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
