"""What a step would have selected, rewarded and weighed with other settings: from its record; nothing is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from exgrpo.db.rows.replays import StoredRow
from exgrpo.db.rows.runs import BucketRow, CandidateRow
from exgrpo_core.errors import InputError, NotRecordedError
from exgrpo_core.experience_management.bucket_sampler import bucket_probabilities, sample_buckets, sample_members
from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.loading import TRAJECTORIES, build_part
from exgrpo_core.methods.protocols import TrajectorySelector
from exgrpo_core.types import Float64Array


@dataclass(frozen=True, slots=True)
class Settings:
    """mu and sigma as correctness rates, rho as a share, and the estimator; None keeps the recorded choices."""

    center: float
    spread: float
    ratio: float
    estimator: TrajectorySelector | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored trajectory with its newest known scores, nats; `scored_step` is the step that recorded them."""

    trajectory_id: int
    scored_step: int
    entropy: float
    nll: float
    num_tokens: int

    @classmethod
    def of(cls, row: CandidateRow) -> "Candidate":
        """Return a candidate of a step as that step scored it."""
        return cls(row.trajectory_id, row.step, row.entropy, row.nll, row.num_tokens)


@dataclass(frozen=True, slots=True)
class RecordedDraw:
    """What a step drew. `members` are the questions of buckets 1..K before it, `drawn` the bucket of each drawn one.

    `probabilities` are the recorded ones, by bucket.
    """

    step: int
    batch_size: int
    rollouts_per_question: int
    members: Mapping[int, Sequence[int]]
    drawn: Mapping[int, int]
    probabilities: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class QuestionDraw:
    """One possible draw under other settings: the questions kept, added and dropped; probabilities are by bucket."""

    kept: dict[int, int]
    added: dict[int, int]
    dropped: dict[int, int]
    probabilities: dict[int, float]


class Change(StrEnum):
    """What becomes of a question; those that change come first."""

    OTHER_TRAJECTORY = "other trajectory"
    ADDED = "drawn instead"
    DROPPED = "not drawn"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a question replays under other settings; `recorded_id` is None of one that was not drawn."""

    question_index: int
    bucket: int
    change: Change
    recorded_id: int | None
    choice: Candidate | None


def recorded_draw(
    before: Mapping[int, int], buckets: Sequence[BucketRow], rows: Sequence[CandidateRow], batch_size: int, size: int
) -> RecordedDraw:
    """Return what a step drew; `before` has the bucket of each question before it, `size` is K."""
    members: dict[int, list[int]] = {}
    for index, bucket in sorted(before.items()):
        members.setdefault(bucket, []).append(index)
    return RecordedDraw(
        step=rows[0].step,
        batch_size=batch_size,
        rollouts_per_question=size,
        members=members,
        drawn={row.question_index: row.bucket for row in rows},
        probabilities={row.bucket: row.probability for row in buckets},
    )


def other_choices(
    rows: Sequence[CandidateRow],
    stored: Sequence[StoredRow],
    draw: "QuestionDraw",
    estimator: TrajectorySelector | None,
) -> list[Choice]:
    """Return what becomes of each question that was or would be drawn; `stored` holds what added ones have stored."""
    scored: dict[int, list[Candidate]] = {}
    for row in rows:
        scored.setdefault(row.question_index, []).append(Candidate.of(row))
    for known in stored:
        candidate = Candidate(known.trajectory_id, known.scored_step, known.entropy, known.nll, known.num_tokens)
        scored.setdefault(known.question_index, []).append(candidate)
    chosen: dict[int, int] = {}
    for row in rows:
        if row.is_chosen:
            chosen.setdefault(row.question_index, row.trajectory_id)
    choices = []
    for index, bucket in draw.kept.items():
        choice = rechoose(scored[index], estimator, chosen[index])
        is_same = choice is not None and choice.trajectory_id == chosen[index]
        change = Change.SAME if is_same else Change.OTHER_TRAJECTORY
        choices.append(Choice(index, bucket, change, chosen[index], choice))
    for index, bucket in draw.added.items():
        choices.append(Choice(index, bucket, Change.ADDED, None, rechoose(scored.get(index, []), estimator, None)))
    choices += [Choice(index, bucket, Change.DROPPED, chosen[index], None) for index, bucket in draw.dropped.items()]
    return sorted(choices, key=lambda row: (list(Change).index(row.change), row.question_index))


def selector_of(algorithm: Mapping[str, Any], name: str | None = None) -> TrajectorySelector | None:
    """Return a run's trajectory selector, or another one with its settings; None if this machine does not know it."""
    try:
        settings = SimpleNamespace(**{**algorithm, TRAJECTORIES: name or algorithm[TRAJECTORIES]})
        selector: TrajectorySelector = build_part(TRAJECTORIES, settings)
    except InputError:
        return None
    return selector


def is_recomputable(selector: TrajectorySelector) -> bool:
    """Whether the selector's scores follow from what is recorded of each candidate."""
    any_candidate = Candidate(trajectory_id=0, scored_step=0, entropy=1.0, nll=1.0, num_tokens=1)
    try:
        return not np.isnan(selector.score(recorded_columns([any_candidate]))).any()
    except NotRecordedError:
        return False


def recorded_columns(candidates: Sequence[Candidate]) -> CandidateColumns:
    """Return what is recorded of candidates; other columns raise."""
    entropies = np.array([row.entropy for row in candidates], dtype=np.float32)
    nlls = np.array([row.nll for row in candidates], dtype=np.float32)
    return CandidateColumns(entropies, nlls, np.array([row.num_tokens for row in candidates], dtype=np.int64))


def redraw(recorded: RecordedDraw, settings: Settings, seed: int) -> QuestionDraw:
    """Return one draw under the settings that keeps as many recorded questions as their probabilities allow.

    A drawn question of bucket k stays with probability min(1, p'_k / p_k); the others are drawn again where p' is
    larger (a maximal coupling), so that the settings of the run itself change nothing. Draws beyond a bucket's size go
    to the others, as in Algorithm 2.
    """
    rng = np.random.default_rng([seed, recorded.step])
    buckets = list(range(1, recorded.rollouts_per_question + 1))
    members = {bucket: np.asarray(recorded.members.get(bucket, ()), dtype=np.int64) for bucket in buckets}
    sizes = np.array([members[bucket].size for bucket in buckets])
    wanted = min(int(settings.ratio * recorded.batch_size + 1e-9), int(sizes.sum()))
    new = _probabilities(recorded, settings, sizes)
    old = np.array([recorded.probabilities.get(bucket, 0.0) for bucket in buckets])
    stays = np.divide(new, old, out=np.ones_like(new), where=old > 0)
    kept = [index for index, bucket in recorded.drawn.items() if bucket in members and rng.random() < stays[bucket - 1]]
    num_moved = min(len(recorded.drawn) - len(kept), max(0, wanted - len(kept)))
    kept = sorted(int(index) for index in rng.permutation(kept)[:wanted])
    added = _draw(members, kept, np.maximum(new - old, 0.0), num_moved, rng)
    added |= _draw(members, [*kept, *added], new, wanted - len(kept) - len(added), rng)
    stay = set(kept) | added.keys()
    return QuestionDraw(
        kept={index: recorded.drawn[index] for index in kept},
        added={index: bucket for index, bucket in added.items() if index not in recorded.drawn},
        dropped={index: bucket for index, bucket in recorded.drawn.items() if index not in stay},
        probabilities=dict(zip(buckets, new.tolist(), strict=True)),
    )


def rechoose(
    candidates: Sequence[Candidate], estimator: TrajectorySelector | None, recorded_id: int | None
) -> Candidate | None:
    """Return the candidate that the estimator chooses, the oldest of equals; None if no candidate has scores.

    Without an estimator the recorded choice is kept; only drawn questions have one.
    """
    if estimator is None:
        return next((row for row in candidates if row.trajectory_id == recorded_id), None)
    scored = [row for row in candidates if not np.isnan([row.entropy, row.nll]).any()]
    if not scored:
        return None
    positions, _ = estimator.choose(recorded_columns(scored), 1, np.random.default_rng(0))
    return scored[int(positions[0])]


def _probabilities(recorded: RecordedDraw, settings: Settings, sizes: np.ndarray) -> Float64Array:
    rates = np.arange(1, recorded.rollouts_per_question + 1) / recorded.rollouts_per_question
    weights = bucket_probabilities(rates, settings.center, settings.spread) * (sizes > 0)
    total = weights.sum()
    return weights / total if total > 0 else weights


def _draw(
    members: Mapping[int, np.ndarray], chosen: Sequence[int], weights: Float64Array, count: int,
    rng: np.random.Generator,
) -> dict[int, int]:  # fmt: skip
    """Return `count` questions that are not chosen yet, drawn by bucket and then uniformly within it."""
    free = [np.setdiff1d(questions, chosen) for questions in members.values()]
    sizes = [questions.size for questions in free]
    counts = sample_buckets(sizes, weights, min(count, sum(sizes)), rng)
    members_drawn = sample_members(free, counts, rng)
    return {int(index): bucket for bucket, drawn in zip(members, members_drawn, strict=True) for index in drawn}
