"""What an executed step compares: facts of one value or array each, and the row that sums up facts of one kind."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from exgrpo_core.errors import InputError

SMALLEST = 1e-3
"""Tolerances are relative to at least this."""
MAX_SHOWN = 8


class ReplayError(InputError, ValueError):
    """A step that cannot be executed again; one sentence says why."""


class Stage(StrEnum):
    """The stages of a step, in their order."""

    SELECTION = "selection"
    REWARD = "reward"
    ADVANTAGES = "advantages"
    LOSS = "loss"
    UPDATE = "update"


class Outcome(StrEnum):
    """What a comparison found, in the order of what counts most."""

    DIFFERS = "differs"
    SAME = "same"
    UNKNOWN = "not compared"
    NO_EFFECT = "no effect"


@dataclass(frozen=True, slots=True)
class Fact:
    """One comparison of a recorded with a computed value, or of two arrays, whose first different place is `token`."""

    stage: Stage
    compared: str
    outcome: Outcome
    question_index: int | None = None
    trajectory_id: int | None = None
    token: int | None = None
    recorded: Any = None
    computed: Any = None
    difference: float = 0.0
    """Largest difference of numbers; NaN where something else differs."""
    num_compared: int = 1
    note: str = ""
    mini_batch: int | None = None
    """Counted from 1."""
    num_different: int = 1
    """Of those compared, where something differs."""
    formulas: tuple[str, ...] = ()
    """The names of all formulas that give the recorded values, of a fact by `named`."""


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """All facts of a step of one kind; the place and both values are those of the first difference.

    Where nothing differs, these are None. `note` says why nothing is compared, and how to record what is missing.
    """

    step: int
    stage: Stage
    compared: str
    outcome: Outcome
    num_compared: int
    num_different: int
    largest_difference: float
    question_index: int | None
    trajectory_id: int | None
    token: int | None
    recorded: Any
    computed: Any
    note: str
    mini_batch: int | None = None
    formulas: tuple[str, ...] = ()
    questions: tuple[int | None, ...] = ()
    """All questions in which something differs, ascending; None first if that belongs to no question."""

    @property
    def first_difference(self) -> str:
        """Where values first differ, and both of them; "" if none do."""
        if self.outcome is not Outcome.DIFFERS:
            return ""
        places = {
            "mini-batch": self.mini_batch, "question": self.question_index, "trajectory": self.trajectory_id,
            "token": self.token,
        }  # fmt: skip
        where = ", ".join(f"{name} {number}" for name, number in places.items() if number is not None)
        recorded, computed = ("nothing" if value is None else value for value in (self.recorded, self.computed))
        return f"{where}: recorded {recorded}, computed {computed}".removeprefix(": ")

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "ReplayRow":
        """Return the row that `exgrpo replay --json` printed."""
        gap = record["largest_difference"]
        words = {"stage": Stage(record["stage"]), "outcome": Outcome(record["outcome"])}
        return cls(**{**record, **words, "largest_difference": float("nan") if gap is None else gap})


def unknown(stage: Stage, compared: str, note: str, question_index: int | None = None) -> Fact:
    """Return that something cannot be compared, and why."""
    return Fact(stage, compared, Outcome.UNKNOWN, question_index, num_compared=0, note=note)


def named(stage: Stage, compared: str, begin: str, formulas: Sequence[str], num_compared: int) -> Fact:
    """Return that formulas give the recorded values: the first is named, and the others that cannot be told from it."""
    others = f"; what is recorded cannot tell it from {', '.join(formulas[1:])}" if formulas[1:] else ""
    note = f"{begin} {formulas[0]}{others}."
    return Fact(stage, compared, Outcome.SAME, num_compared=num_compared, note=note, formulas=tuple(formulas))


def compare(
    stage: Stage,
    compared: str,
    recorded: Any,  # noqa: ANN401 - a number, a text, a list or an array
    computed: Any,  # noqa: ANN401 - likewise
    *,
    tolerance: float = 0.0,
    question: int | None = None,
    trajectory: int | None = None,
) -> Fact:
    """Compare two values of one kind; `tolerance` is relative to the recorded number."""
    if isinstance(recorded, np.ndarray):
        return _compare_arrays(stage, compared, (recorded, np.asarray(computed)), tolerance, question, trajectory)
    difference = float("nan")
    is_same = recorded == computed
    if _is_number(recorded) and _is_number(computed):
        difference = abs(float(recorded) - float(computed))
        both_nan = np.isnan(recorded) and np.isnan(computed)
        is_same = bool(is_same or both_nan or difference <= tolerance * max(abs(recorded), SMALLEST))
        difference = 0.0 if both_nan else difference
    outcome = Outcome.SAME if is_same else Outcome.DIFFERS
    return Fact(
        stage, compared, outcome, question, trajectory, None, recorded, computed,
        0.0 if is_same and np.isnan(difference) else difference,
    )  # fmt: skip


def compare_ids(
    stage: Stage,
    compared: str,
    recorded: int | None,
    computed: int | None,
    question: int,
    trajectory: int | None = None,
) -> Fact:
    """Compare which trajectory two rules took; ids have no largest difference."""
    fact = compare(stage, compared, recorded, computed, question=question, trajectory=trajectory)
    return fact if fact.outcome is Outcome.SAME else replace(fact, difference=float("nan"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _compare_arrays(
    stage: Stage,
    compared: str,
    values: tuple[np.ndarray, np.ndarray],
    tolerance: float,
    question: int | None,
    trajectory: int | None,
) -> Fact:
    recorded, computed = values
    if recorded.shape != computed.shape:
        sizes = (f"{recorded.size} values", f"{computed.size} values")
        return Fact(stage, compared, Outcome.DIFFERS, question, trajectory, None, *sizes, float("nan"))
    gaps = np.abs(recorded.astype(np.float64) - computed.astype(np.float64))
    is_bad = ~(gaps <= tolerance * np.maximum(np.abs(recorded), SMALLEST)) & ~(
        (recorded != recorded) & (computed != computed)
    )
    largest = float(np.nanmax(gaps)) if gaps.size and not np.isnan(gaps).all() else 0.0
    if not is_bad.any():
        return Fact(stage, compared, Outcome.SAME, question, trajectory, difference=largest, num_compared=recorded.size)
    first = int(np.argmax(is_bad))
    return Fact(
        stage, compared, Outcome.DIFFERS, question, trajectory, first, recorded[first].item(), computed[first].item(),
        largest, recorded.size, num_different=int(is_bad.sum()),
    )  # fmt: skip


def summed_up(step: int, facts: Iterable[Fact]) -> list[ReplayRow]:
    """Return a row for each kind of fact, in the order of the stages."""
    kinds: dict[tuple[Stage, str], list[Fact]] = {}
    for fact in facts:
        kinds.setdefault((fact.stage, fact.compared), []).append(fact)
    order = list(Stage)
    rows = [_row(step, of_kind) for of_kind in kinds.values()]
    return sorted(rows, key=lambda row: order.index(row.stage))


def summed_over(rows: Iterable[ReplayRow]) -> list[ReplayRow]:
    """Return a row for each kind of comparison of several steps: the first one that differs, with the sums of all."""
    kinds: dict[tuple[Stage, str], list[ReplayRow]] = {}
    for row in rows:
        kinds.setdefault((row.stage, row.compared), []).append(row)
    found = []
    for of_kind in kinds.values():
        first = _common(next(row for outcome in Outcome for row in of_kind if row.outcome is outcome), of_kind)
        gaps = [row.largest_difference for row in of_kind if row.outcome is first.outcome]
        found.append(
            replace(
                first,
                num_compared=sum(row.num_compared for row in of_kind),
                num_different=sum(row.num_different for row in of_kind) or first.num_different,
                largest_difference=max((gap for gap in gaps if not np.isnan(gap)), default=float("nan")),
            )
        )
    return sorted(found, key=lambda row: list(Stage).index(row.stage))


def _common(first: ReplayRow, rows: Sequence[ReplayRow]) -> ReplayRow:
    """Return a row with only those formulas that give the values of all steps; one that differs if there are none."""
    kept = list(first.formulas)
    for row in rows if kept else ():
        left = [name for name in kept if name in row.formulas]
        if row.formulas and not left:
            note = f"No formula gives all steps: before step {row.step} it is {kept[0]}, there {row.formulas[0]}."
            return replace(
                row, outcome=Outcome.DIFFERS, num_different=1, recorded=row.formulas[0], computed=kept[0], note=note
            )
        kept = left if row.formulas else kept
    if not kept:
        return first
    begin = first.note.partition(first.formulas[0])[0].rstrip()
    return replace(first, note=named(first.stage, first.compared, begin, kept, 1).note, formulas=tuple(kept))


def _row(step: int, facts: Sequence[Fact]) -> ReplayRow:
    different = [fact for fact in facts if fact.outcome is Outcome.DIFFERS]
    made = [fact for fact in facts if fact.outcome in {Outcome.SAME, Outcome.DIFFERS}]
    outcome = Outcome.DIFFERS if different else Outcome.SAME if made else facts[0].outcome
    first = different[0] if different else None
    gaps = [fact.difference for fact in different or made if not np.isnan(fact.difference)]
    return ReplayRow(
        step=step,
        stage=facts[0].stage,
        compared=facts[0].compared,
        outcome=outcome,
        num_compared=sum(fact.num_compared for fact in made),
        num_different=sum(fact.num_different for fact in different),
        largest_difference=max(gaps, default=float("nan")),
        question_index=None if first is None else first.question_index,
        trajectory_id=None if first is None else first.trajectory_id,
        token=None if first is None else first.token,
        recorded=None if first is None else first.recorded,
        computed=None if first is None else first.computed,
        note=next((fact.note for fact in facts if fact.note), ""),
        mini_batch=None if first is None else first.mini_batch,
        formulas=() if different else facts[0].formulas,
        questions=tuple(
            sorted({fact.question_index for fact in different}, key=lambda index: -1 if index is None else index)
        ),
    )
