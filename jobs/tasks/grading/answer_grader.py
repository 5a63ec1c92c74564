"""Grades answers in two ways: at once where that is safe, else in killable processes, remembering what was decided.

| Case | paper | training |
|---|---|---|
| no box | unparsed | unparsed |
| several boxes | the last one | the last one, with those that commas, `and` or `or` join to it |
| the last box never closes | unparsed | the last one that closes |
| choice | the published rules on the letter | the label in the box; boxes of several labels are none |
| mathematics | the published rules with Math-Verify | Math-Verify with the corrections of `equality.py` |

Choices are never guessed from prose. An answer longer than the cap is unparsed in both.
"""

import hashlib
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from numbers import Real
from queue import SimpleQueue
from typing import NamedTuple, Self, get_args

from exgrpo.jobs.specs.base import AnswerKind
from exgrpo.jobs.tasks.grading.boxed_answers import (
    THINK_END,
    boxed_choice,
    closes_thought,
    grade_choice,
    grade_without_verifier,
    joined_boxes,
    last_boxed_as_published,
)
from exgrpo.jobs.tasks.grading.reward_function import Decision, Grade
from exgrpo.jobs.tasks.grading.worker_process import Comparison, GradingProcess
from exgrpo_core.errors import FieldError, shown

GRADING_RULES = 15
"""Version of the rules: raise it when an answer is decided otherwise. Scores of different versions are not compared."""
_LIBRARIES = ("math-verify", "latex2sympy2_extended", "sympy", "pylatexenc")
CHUNK_SIZE = 64
MAX_ANSWER_CHARS = 1000
MAX_REMEMBERED = 200_000
MEMORY_BYTES = 2 << 30


class Scheme(StrEnum):
    """By whose rules an answer is scored."""

    PAPER = "paper"
    """The published rules of the Oat grader: last box, its normalisation, no format check."""
    TRAINING = "training"
    """As rewarded: Math-Verify on the last box."""


@dataclass(frozen=True, slots=True)
class GradeItem:
    """One response to grade against the gold answer of its question."""

    gold: str
    response: str
    kind: AnswerKind


class SideBySide(NamedTuple):
    """The outcome of one response by each scheme."""

    paper: Grade
    training: Grade


@cache
def grader_version() -> str:
    """Return `GRADING_RULES` with 8 hexadecimal digits of the versions of the libraries that the rules rest on."""
    libraries = ", ".join(f"{library} {version(library)}" for library in _LIBRARIES)
    return f"{GRADING_RULES}-{hashlib.sha256(libraries.encode()).hexdigest()[:8]}"


class AnswerGrader:
    """Grades responses by their last box; safe to call from any thread and from several at once.

    Processes start with the first answer that needs Math-Verify and end with `close` or with this process. The verdict
    on a (gold, answer) pair is remembered, timeouts and crashes too.
    `seconds_per_answer` is by the clock, from when a process has the answer in hand; `max_answer_chars` is of the box's
    content.
    """

    def __init__(
        self,
        num_workers: int = 1,
        seconds_per_answer: float = 5.0,
        max_answer_chars: int = MAX_ANSWER_CHARS,
        requires_think_end: bool = False,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._max_answer_chars = max_answer_chars
        self._requires_think_end = requires_think_end
        self._workers = [GradingProcess(seconds_per_answer, memory_bytes) for _ in range(num_workers)]
        self._idle: SimpleQueue[GradingProcess] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(num_workers, thread_name_prefix="grading")
        self._remembered: dict[Comparison, Decision] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def worker_ids(self) -> list[int]:
        """Process ids of the grading processes that are running."""
        return [worker.process_id for worker in self._workers if worker.process_id is not None]

    def grade(self, items: Sequence[GradeItem], scheme: Scheme = Scheme.TRAINING) -> list[Grade]:
        """Return one outcome an item, in order, by the rules of `scheme`.

        Raises:
            GraderError: Grading processes do not start, or the grader is closed.
        """
        return [decision.grade for decision in self.decide(items, scheme)]

    def decide(self, items: Sequence[GradeItem], scheme: Scheme = Scheme.TRAINING) -> list[Decision]:
        """Return the outcome of each item and the rule that decided, in order; see `grade`."""
        decided = [self._decide_at_once(item, scheme) for item in items]
        open_pairs = dict.fromkeys(value for value in decided if not isinstance(value, Decision))
        verdicts = self._verify(list(open_pairs))
        return [entry if isinstance(entry, Decision) else verdicts[entry] for entry in decided]

    def grade_side_by_side(self, items: Sequence[GradeItem]) -> list[SideBySide]:
        """Return the outcomes of each item by every scheme, in order.

        Raises:
            GraderError: Grading processes do not start, or the grader is closed.
        """
        columns = [self.grade(items, scheme) for scheme in (Scheme.PAPER, Scheme.TRAINING)]
        return [SideBySide(*row) for row in zip(*columns, strict=True)]

    def close(self) -> None:
        """End all processes, and a call of `grade` under way with an error; twice does no harm."""
        for worker in self._workers:
            worker.abandon()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def _decide_at_once(self, item: GradeItem, scheme: Scheme) -> Decision | Comparison:
        """Return the outcome where it can be told at once, else what a grading process has to compare."""
        is_training = scheme is Scheme.TRAINING
        if is_training and self._requires_think_end and not closes_thought(item.response):
            return Decision(Grade.UNPARSED, f"no {THINK_END} in the response")
        find = boxed_choice if item.kind == "choice" else joined_boxes
        boxed = (find if is_training else last_boxed_as_published)(item.response)
        if boxed is None or len(boxed) > self._max_answer_chars:
            limit = f"a box with more than {self._max_answer_chars:,} characters"
            return Decision(Grade.UNPARSED, r"no \boxed{...} that closes" if boxed is None else limit)
        if is_training:
            is_choice = item.kind == "choice"
            grade = grade_choice(item.gold, boxed) if is_choice else grade_without_verifier(item.gold, boxed)
            rule = "the label of an option" if is_choice else "texts and plain numbers"
            return ("training", item.gold, boxed) if grade is None else Decision(grade, rule)
        return Decision(Grade.CORRECT, "equal texts") if boxed == item.gold else ("paper", item.gold, boxed)

    def _verify(self, pairs: list[Comparison]) -> dict[Comparison, Decision]:
        with self._lock:
            known = {pair: self._remembered[pair] for pair in pairs if pair in self._remembered}
        unknown = [pair for pair in pairs if pair not in known]
        size = min(CHUNK_SIZE, -(-len(unknown) // len(self._workers)) or 1)
        chunks = [unknown[start : start + size] for start in range(0, len(unknown), size)]
        found = [outcome for outcomes in self._threads.map(self._verify_chunk, chunks) for outcome in outcomes]
        fresh = dict(zip(unknown, found, strict=True))
        self._remember(fresh.items())
        return known | fresh

    def _verify_chunk(self, chunk: list[Comparison]) -> list[Decision]:
        worker = self._idle.get()
        try:
            return worker.grade(chunk)
        finally:
            self._idle.put(worker)

    def _remember(self, verdicts: Iterable[tuple[Comparison, Decision]]) -> None:
        with self._lock:
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered.update(verdicts)


def grade_answer(
    answer: str | float, gold: str | float, grading: Scheme | str = Scheme.TRAINING, kind: AnswerKind = "math"
) -> Decision:
    r"""Return the verdict of a run's grader on one answer, and the rule that decided.

    Args:
        answer: A response, or only the content of its `\boxed{...}`. A number is read as its text.
        gold: The right answer, a text or a number.
        grading: `training` for the rules that rewards follow, `paper` for those of published scores.
        kind: `math`, or `choice` if the gold answer is the label of an option.

    Raises:
        FieldError: An answer is neither text nor a number, or there is no such grading or kind.
        GraderError: The grading process does not start.
    """
    for name, value in (("answer", answer), ("gold", gold)):
        if not isinstance(value, str | Real):
            raise FieldError(f"expected a text or a number, not {shown(value)}.", name)
    for name, value, known in (("grading", grading, [*map(str, Scheme)]), ("kind", kind, [*get_args(AnswerKind)])):
        if value not in known:
            raise FieldError(f"{shown(value)} is not one of {', '.join(map(repr, known))}.", name)
    text = str(answer)
    response = text if "\\boxed" in text else rf"\boxed{{{text}}}"
    with AnswerGrader() as grader:
        return grader.decide([GradeItem(str(gold), response, kind)], Scheme(grading))[0]
