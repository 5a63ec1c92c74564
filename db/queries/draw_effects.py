"""Replayed against unreplayed questions of one bucket, which Algorithm 2 chooses between by chance.

An observation is a question that could be drawn in a step. Drawn ones were trained on with a replay; those that were
neither drawn nor fresh in that step are compared with them. Rates are those of fresh rollouts, before their step's
update. Estimates are within step and bucket (fixed effects), standard errors clustered by question.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, and_, select

from db.connections.session import Database
from db.queries.buffer import ancestry, last_changes, moves
from db.queries.retirement import question_attempts
from db.rows.chains_of_thought import ALL
from db.rows.replays import Difference, DrawEffect
from db.tables import models
from db.tables.shared_reads import require_run_key

MAX_OBSERVATIONS = 500_000
"""Of a longer run one in so many steps is used."""
_OUTSIDE = -1
_ROUNDING = 1e-12

Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


OBSERVATION = np.dtype(
    [
        ("step", "<i8"),
        ("question", "<i8"),
        ("bucket", "<i8"),
        ("is_drawn", "?"),
        ("is_retired", "?"),
        ("idle", "<f8"),
        ("wait", "<f8"),
        ("rate", "<f8"),
        ("entropy", "<f8"),
    ]
)
"""A question that could be drawn in a step, in which it was perhaps retired.

`idle` and `wait` are the steps since its last attempt and to its next one, `rate` the correct share then, NaN without
one. `entropy` is the replay's when it was chosen, in nats, NaN of undrawn questions.
"""
Observations = npt.NDArray[np.void]


def draw_effects(database: Database, run_id: str, num_rollouts: int | None) -> list[DrawEffect]:
    """Return the effect of a replay over all, by bucket, by time since the last attempt and by the replay's entropy.

    `num_rollouts` is K, or None where buckets are not of correct rollouts: changes are then from 0.
    """
    with database.read() as connection:
        seen = _observations(connection, run_id)
    if not seen["is_drawn"].any():
        return []
    idle, entropy = _median(seen["idle"][seen["is_drawn"]]), _median(seen["entropy"][seen["is_drawn"]])
    groups: dict[str, Mask] = {ALL: np.ones(seen.size, dtype=np.bool_)}
    for bucket in np.unique(seen["bucket"][seen["is_drawn"]]):
        groups[f"bucket {bucket}"] = seen["bucket"] == bucket
    groups[f"tried within {idle:.0f} steps"] = seen["idle"] <= idle
    groups["tried longer ago"] = seen["idle"] > idle
    for name, is_low in (("replay of lower entropy", True), ("replay of higher entropy", False)):
        groups[name] = ~seen["is_drawn"] | ((seen["entropy"] <= entropy) == is_low)
    return [draw_effect(name, seen, chosen, num_rollouts) for name, chosen in groups.items()]


def draw_effect(group: str, seen: Observations, chosen: Mask, num_rollouts: int | None) -> DrawEffect:
    """Return the effect on the chosen observations."""
    part = seen[chosen]
    has_next = ~np.isnan(part["rate"])
    is_solved = part["is_drawn"] & part["is_retired"] & ~has_next
    before = part["bucket"] / num_rollouts if num_rollouts else 0.0
    changes = np.where(is_solved, 1.0, part["rate"]) - before
    drawn, undrawn, difference = _within(part, changes, has_next)
    waits = _within(part, part["wait"], has_next)
    return DrawEffect(
        group=group,
        num_drawn=int((part["is_drawn"] & has_next).sum()),
        num_undrawn=int((~part["is_drawn"] & has_next).sum()),
        num_retired=int(is_solved.sum()),
        change_drawn=drawn,
        change_undrawn=undrawn,
        wait_drawn=waits[0],
        wait_undrawn=waits[1],
        difference=difference,
        difference_with_retired=_within(part, changes, has_next | is_solved)[2],
    )


def _median(values: Numbers) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")


def _within(part: Observations, values: Numbers, is_used: Mask) -> tuple[float, float, Difference]:
    """Return both means over steps and buckets that have both kinds, weighted as in a regression, and the difference.

    A step and bucket with n1 drawn and n0 undrawn questions weighs n1 n0 / (n1 + n0).
    """
    values, is_drawn = values[is_used], part["is_drawn"][is_used].astype(np.float64)
    span = 1 + part["bucket"].max(initial=0)
    _, strata = np.unique(part["step"][is_used] * span + part["bucket"][is_used], return_inverse=True)
    strata = strata.reshape(-1)
    sizes, num_drawn = np.bincount(strata), np.bincount(strata, weights=is_drawn)
    weights = num_drawn * (sizes - num_drawn) / np.maximum(sizes, 1)
    total = float(weights.sum())
    if total == 0.0:
        return float("nan"), float("nan"), Difference(float("nan"), float("nan"))
    sums, drawn_sums = np.bincount(strata, weights=values), np.bincount(strata, weights=values * is_drawn)
    has_both = weights > 0.0
    drawn = (weights * drawn_sums)[has_both] / num_drawn[has_both]
    undrawn = (weights * (sums - drawn_sums))[has_both] / (sizes - num_drawn)[has_both]
    value = float((drawn.sum() - undrawn.sum()) / total)
    centred = is_drawn - (num_drawn / sizes)[strata]
    residuals = values - (sums / sizes)[strata] - value * centred
    _, clusters = np.unique(part["question"][is_used], return_inverse=True)
    scores = np.bincount(clusters.reshape(-1), weights=centred * residuals)
    correction = scores.size / max(1, scores.size - 1)
    error = float(np.sqrt(correction * np.square(scores).sum()) / total)
    if error < _ROUNDING:  # all differ alike, which tells no scatter
        error = float("nan")
    return float(drawn.sum() / total), float(undrawn.sum() / total), Difference(value, error)


def _observations(connection: Connection, run_id: str) -> Observations:
    run_key = require_run_key(connection, run_id)
    drawn = _drawn(connection, run_key)
    attempts = _Attempts(connection, run_key)
    blocks = [_of_step(*state, drawn, attempts) for state in _states(connection, run_id, run_key, sorted(drawn))]
    return np.concatenate(blocks) if blocks else np.empty(0, dtype=OBSERVATION)


def _of_step(
    step: int, buckets: Integers, retired: set[int], drawn: dict[int, dict[int, float]], attempts: "_Attempts"
) -> Observations:
    questions = np.flatnonzero(buckets > 0)
    seen = np.empty(questions.size, dtype=OBSERVATION)
    seen["step"], seen["question"], seen["bucket"] = step, questions, buckets[questions]
    seen["is_drawn"] = np.isin(questions, list(drawn[step]))
    seen["is_retired"] = np.isin(questions, list(retired))
    seen["entropy"] = [drawn[step].get(question, np.nan) for question in questions.tolist()]
    seen["wait"], seen["rate"], seen["idle"], is_tried = attempts.around(questions, step)
    return seen[seen["is_drawn"] | ~is_tried]


def _drawn(connection: Connection, run_key: int) -> dict[int, dict[int, float]]:
    chosen, scored = models.selections, models.candidates
    is_chosen = and_(
        *(scored.c[column.name] == column for column in chosen.primary_key),
        scored.c.trajectory_id == chosen.c.chosen_trajectory_id,
    )
    query = (
        select(chosen.c.step, chosen.c.question_index, scored.c.entropy)
        .join_from(chosen, scored, is_chosen, isouter=True)
        .where(chosen.c.run_key == run_key)
    )
    drawn: dict[int, dict[int, float]] = {}
    for step, question, entropy in connection.execute(query):
        drawn.setdefault(step, {})[question] = entropy
    return drawn


def _states(
    connection: Connection, run_id: str, run_key: int, steps: list[int]
) -> Iterator[tuple[int, Integers, set[int]]]:
    """Yield steps with the bucket of every question before them, and the questions that they retired."""
    if not steps:
        return
    older = reversed(ancestry(connection, run_id)[1:])
    known = [change for key, until in older for change in last_changes(connection, key, until)]
    changes = connection.execute(moves(run_key)).all()
    size = 1 + max([row.question_index for row in changes] + [question for question, _ in known], default=0)
    buckets = np.full(size, _OUTSIDE, dtype=np.int64)
    for question, bucket in known:
        buckets[question] = _OUTSIDE if bucket is None else bucket
    retired: dict[int, set[int]] = {}
    for row in changes:
        if row.kind == "retired":
            retired.setdefault(row.step, set()).add(row.question_index)
    stride = max(1, -(-len(steps) * size // MAX_OBSERVATIONS))
    position = 0
    for step in steps[::stride]:
        while position < len(changes) and changes[position].step < step:
            change = changes[position]
            buckets[change.question_index] = _OUTSIDE if change.bucket_to is None else change.bucket_to
            position += 1
        yield step, buckets, retired.get(step, set())


class _Attempts:
    """The attempts at every question of a run: their steps, and the share of correct rollouts."""

    def __init__(self, connection: Connection, run_key: int) -> None:
        self._keys, self._span, num_rollouts, num_correct = question_attempts(connection, run_key)
        self._rates = num_correct / np.maximum(1, num_rollouts)

    def around(self, questions: Integers, step: int) -> tuple[Numbers, Numbers, Numbers, Mask]:
        """Return steps to the next attempt and its rate, steps since the last one, and which are tried in this step."""
        here = questions * self._span + step
        after, before = np.searchsorted(self._keys, here, "right"), np.searchsorted(self._keys, here) - 1
        is_tried = after - before == 2
        next_keys, last_keys = (self._keys_at(positions, questions) for positions in (after, before))
        rates = np.where(np.isnan(next_keys), np.nan, self._rates[np.minimum(after, self._rates.size - 1)])
        return next_keys - here, rates, here - last_keys, is_tried

    def _keys_at(self, positions: Integers, questions: Integers) -> Numbers:
        """Return keys at positions, NaN where they are of another question."""
        keys = self._keys[np.clip(positions, 0, self._keys.size - 1)]
        is_same = (positions >= 0) & (positions < self._keys.size) & (keys // self._span == questions)
        return np.where(is_same, keys.astype(np.float64), np.nan)
