"""What a step would have drawn and chosen with other settings: from its record; nothing is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from exgrpo.db.rows.replays import StoredRow
from exgrpo.db.rows.runs import CandidateRow
from exgrpo_core.errors import InputError, NotRecordedError
from exgrpo_core.experience_management.bucket_sampler import bucket_probabilities, sample_buckets, sample_members
from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.loading import TRAJECTORIES, build_part
from exgrpo_core.methods.protocols import TrajectorySelector
from exgrpo_core.types import Float64Array, Int64Array

Scored = CandidateRow | StoredRow
"""A stored trajectory with scores of a step, or with its newest ones before it."""


@dataclass(frozen=True, slots=True)
class RecordedDraw:
    """What a step drew. `members` are the questions of buckets 1..K before it, `drawn` the bucket of each drawn one.

    `probabilities` are the recorded ones, by bucket.
    """

    step: int
    batch_size: int
    members: Mapping[int, Int64Array]
    drawn: Mapping[int, int]
    probabilities: Mapping[int, float]


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
    one = np.ones(1, dtype=np.float32)
    try:
        return not np.isnan(selector.score(CandidateColumns(one, one, one.astype(np.int64)))).any()
    except NotRecordedError:
        return False


def recorded_columns(candidates: Sequence[Scored]) -> CandidateColumns:
    """Return what is recorded of candidates; other columns raise."""
    entropies = np.array([row.entropy for row in candidates], dtype=np.float32)
    nlls = np.array([row.nll for row in candidates], dtype=np.float32)
    return CandidateColumns(entropies, nlls, np.array([row.num_tokens for row in candidates], dtype=np.int64))


def redraw(recorded: RecordedDraw, center: float, spread: float, ratio: float) -> dict[int, int]:
    """Return one draw with another mu, sigma and rho, as the bucket of each question.

    It keeps as many recorded questions as their probabilities allow: a drawn question of bucket k stays with
    probability min(1, p'_k / p_k); the others are drawn again where p' is larger (a maximal coupling), so that the
    settings of the run itself change nothing. Draws beyond a bucket's size go to the others, as in Algorithm 2.
    """
    rng = np.random.default_rng([0, recorded.step])
    buckets, members = list(recorded.members), recorded.members
    sizes = np.array([members[bucket].size for bucket in buckets])
    wanted = min(int(ratio * recorded.batch_size + 1e-9), int(sizes.sum()))
    weights = bucket_probabilities(np.array(buckets) / len(buckets), center, spread) * (sizes > 0)
    new = weights / total if (total := weights.sum()) > 0 else weights
    old = np.array([recorded.probabilities.get(bucket, 0.0) for bucket in buckets])
    stays = np.divide(new, old, out=np.ones_like(new), where=old > 0)
    kept = [index for index, bucket in recorded.drawn.items() if bucket in members and rng.random() < stays[bucket - 1]]
    num_moved = min(len(recorded.drawn) - len(kept), max(0, wanted - len(kept)))
    kept = sorted(int(index) for index in rng.permutation(kept)[:wanted])
    added = _draw(members, kept, np.maximum(new - old, 0.0), num_moved, rng)
    added |= _draw(members, [*kept, *added], new, wanted - len(kept) - len(added), rng)
    return {index: recorded.drawn[index] for index in kept} | added


def rechoose(candidates: Sequence[Scored], estimator: TrajectorySelector) -> int | None:
    """Return the trajectory that the estimator chooses, the oldest of equals; None if no candidate has scores."""
    scored = [row for row in candidates if not np.isnan([row.entropy, row.nll]).any()]
    if not scored:
        return None
    positions, _ = estimator.choose(recorded_columns(scored), 1, np.random.default_rng(0))
    return scored[int(positions[0])].trajectory_id


def _draw(
    members: Mapping[int, Int64Array], chosen: Sequence[int], weights: Float64Array, count: int,
    rng: np.random.Generator,
) -> dict[int, int]:  # fmt: skip
    """Return `count` questions that are not chosen yet, drawn by bucket and then uniformly within it."""
    free = [np.setdiff1d(questions, chosen) for questions in members.values()]
    sizes = [questions.size for questions in free]
    counts = sample_buckets(sizes, weights, min(count, sum(sizes)), rng)
    members_drawn = sample_members(free, counts, rng)
    return {int(index): bucket for bucket, drawn in zip(members, members_drawn, strict=True) for index in drawn}
