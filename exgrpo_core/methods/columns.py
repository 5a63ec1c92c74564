"""The columns of questions, candidates and stored trajectories that the parts of a replay method see.

They are saved with the replay buffer. No torch is loaded.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.errors import NotRecordedError
from exgrpo_core.types import Experience, Float32Array, Float64Array, Int64Array

if TYPE_CHECKING:
    from exgrpo_core.experience_management.replay_buffer import ReplayBuffer

_Column = TypeVar("_Column")


class QuestionColumns:
    """The questions that may be drawn in a step: columns (n,), ascending by index.

    They are those of buckets 1..K, or those of `among` that are in the buffer; never `excluded` ones. A column is
    computed when it is first read, so a sampler pays for what it uses.
    """

    def __init__(
        self, buffer: "ReplayBuffer", step: int, among: Int64Array | None = None, excluded: Collection[int] = ()
    ) -> None:
        self._among = among
        self._excluded = list(excluded)
        self._buffer = buffer
        self._num_buckets = buffer.rollouts_per_question + 1
        self.step = step
        """The step that is planned: `step - newest_rollout_steps` are ages."""

    @cached_property
    def indices(self) -> Int64Array:
        """The questions."""
        if self._among is None:
            return self._without_excluded(self._buffer.questions())
        among = np.sort(self._among)
        return self._without_excluded(among[self._buffer.buckets_of(among) >= 0])

    @cached_property
    def num_correct(self) -> Int64Array:
        """Correct trajectories of K when the question was last rolled out: its bucket."""
        return self._buffer.buckets_of(self.indices)

    @property
    def correctness_rates(self) -> Float64Array:
        """k/K of that time."""
        return self.num_correct / (self._num_buckets - 1)

    @cached_property
    def newest_rollout_steps(self) -> Int64Array:
        """Step of the newest stored trajectory: the model version that wrote it."""
        return self._buffer.newest_rollout_steps(self.indices)

    @cached_property
    def num_draws(self) -> Int64Array:
        """How often the question was drawn so far."""
        return self._buffer.num_draws(self.indices)

    @cached_property
    def last_draw_steps(self) -> Int64Array:
        """Step of the last draw, -1 if there was none."""
        return self._buffer.history.draw_steps[self.indices].astype(np.int64)

    @cached_property
    def num_stored(self) -> Int64Array:
        """Stored trajectories."""
        return self._buffer.num_stored(self.indices)

    @cached_property
    def newest_num_replays(self) -> Int64Array:
        """How often the newest stored trajectory was replayed, and so the group that it is of."""
        return self._buffer.num_replays(self._buffer.newest_rows(self.indices))

    @cached_property
    def reward_stds(self) -> Float64Array:
        """Standard deviation (of K - 1) of the rewards of the group that was last collected from."""
        stds: Float64Array = self._buffer.history.reward_spreads[self.indices, 0].astype(np.float64)
        return stds

    @cached_property
    def reward_deviations(self) -> Float64Array:
        """Mean |reward - mean| of that group: the mean size of its advantages."""
        deviations: Float64Array = self._buffer.history.reward_spreads[self.indices, 1].astype(np.float64)
        return deviations

    @cached_property
    def past_correct(self) -> Int64Array:
        """Successes in each question's newest N groups (n, N), the newest last, -1 if there are fewer.

        The method sets N in `num_past_groups`.
        """
        past = self._buffer.history.past_correct
        return _known("past_correct", past[self.indices].astype(np.int64) if past.shape[1] else None)

    @cached_property
    def most_correct(self) -> Int64Array:
        """The largest k of all of a question's groups, -1 if there are none; kept if `num_past_groups` is above 0."""
        most = self._buffer.history.most_correct
        return _known("most_correct", most[self.indices].astype(np.int64) if most.size else None)

    def bucket_members(self) -> list[Int64Array]:
        """Return the questions of buckets 1..K, each in the order that belongs to the buffer's state."""
        return [self._without_excluded(self._buffer.members(bucket)) for bucket in range(1, self._num_buckets)]

    def draw(self, weights: Float64Array, num_questions: int, rng: np.random.Generator) -> "QuestionDraw":
        """Draw different questions in proportion to weights (n,), as many as wanted and as have one above 0.

        Raises:
            ValueError: A weight is below 0 or no finite number.
        """
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise ValueError(
                f"weights: expected finite numbers of at least 0, got numbers from {weights.min():.6g} to "
                f"{weights.max():.6g}; correct them in the question sampler."
            )
        total = weights.sum()
        if not total:
            return self.take(np.empty(0, dtype=np.int64), weights)
        probabilities = weights / total
        num_drawn = min(num_questions, int(np.count_nonzero(probabilities)))
        chosen = rng.choice(self.indices, num_drawn, replace=False, p=probabilities)
        return self.take(chosen, probabilities)

    def draw_evenly(self, pool: Int64Array, num_questions: int, rng: np.random.Generator) -> "QuestionDraw":
        """Draw different questions of `pool`, which are some of `indices`, each with the same probability."""
        chosen = rng.choice(pool, min(num_questions, pool.size), replace=False) if pool.size else pool
        by_bucket = np.bincount(self._buffer.buckets_of(pool), None, self._num_buckets)
        return self._drawn(chosen, by_bucket / max(pool.size, 1))

    def take(self, question_indices: Int64Array, probabilities: Float64Array) -> "QuestionDraw":
        """Return the draw of these questions, with the probability (n,) that each question had."""
        return self._drawn(question_indices, np.bincount(self.num_correct, probabilities, self._num_buckets))

    def _without_excluded(self, questions: Int64Array) -> Int64Array:
        return questions[~np.isin(questions, self._excluded)] if self._excluded else questions

    def _drawn(self, question_indices: Int64Array, by_bucket: NDArray[Any]) -> "QuestionDraw":
        shares = by_bucket.astype(np.float64, copy=False)[1:]
        return QuestionDraw(question_indices, shares, np.zeros(shares.size, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class QuestionDraw:
    """The questions to replay, all different, with what buckets 1..K had: their probability, and their overflow (K,).

    An overflow is the draws that a bucket got beyond its size and that others took. `weights` are factors of the
    replayed trajectories' advantages, one a question, where the sampler corrects for its draw.
    """

    question_indices: Int64Array
    bucket_probabilities: Float64Array
    overflows: Int64Array
    weights: Float64Array | None = None


@dataclass(frozen=True, slots=True)
class CandidateColumns:
    """Stored trajectories among which one is chosen: columns (N,), oldest first; means are over response tokens, nats.

    `entropies` are of full-vocabulary entropies under the current policy, `nlls` of -log pi: accumulated in float64 and
    rounded once. `num_tokens` are the lengths T_i. A run records these three columns; candidates that are read from a
    record raise `NotRecordedError` for the others.
    """

    entropies: Float32Array
    nlls: Float32Array
    num_tokens: Int64Array
    sampled_or_none: Float32Array | None = None
    replays_or_none: Int64Array | None = None
    """None in a record, as the column before; read `sampled_entropies` and `num_replays`."""
    experiences: Sequence[Experience] | None = None

    @property
    def sampled_entropies(self) -> Float32Array:
        """Means of -pi log pi of the sampled tokens."""
        return _known("sampled_entropies", self.sampled_or_none)

    @property
    def num_replays(self) -> Int64Array:
        """How often each was replayed."""
        return _known("num_replays", self.replays_or_none)

    @property
    def rewards(self) -> Float64Array:
        """Rewards when they were rolled out."""
        return np.array([item.reward for item in _known("rewards", self.experiences)], dtype=np.float64)

    @property
    def rollout_steps(self) -> Float64Array:
        """Steps of their rollouts: the model versions that wrote them."""
        return np.array([item.rollout_step for item in _known("rollout_steps", self.experiences)], dtype=np.float64)

    @property
    def behavior_nlls(self) -> Float64Array:
        """Means of -log pi under the policies that wrote them."""
        stored = _known("behavior_nlls", self.experiences)
        return np.array([-item.behavior_log_probs.mean(dtype=np.float64) for item in stored], dtype=np.float64)

    @property
    def no_scores(self) -> Float32Array:
        """NaN for each: the scores of a rule that compares no numbers."""
        return np.full(self.num_tokens.size, np.nan, dtype=np.float32)

    def of_question(self, part: slice) -> "CandidateColumns":
        """Return the candidates of one question, which are next to each other."""
        columns: list[Any] = [getattr(self, column.name) for column in fields(self)]
        columns = [None if column is None else column[part] for column in columns]
        return CandidateColumns(*columns)


def _known(name: str, column: _Column | None) -> _Column:
    if column is None:
        raise NotRecordedError(f"{name}: not recorded of these candidates.")
    return column


class StoredTrajectories:
    """What is stored of one question: columns (N,), oldest first. A column is read when it is first asked for."""

    def __init__(self, buffer: "ReplayBuffer", question_index: int, step: int) -> None:
        self._buffer, self._step = buffer, step
        self.rows: Int64Array = buffer.rows_of(question_index)
        """Rows of the replay buffer (N,), int64: what `GroupPlan.candidates` takes."""

    @cached_property
    def rollout_steps(self) -> Int64Array:
        """Steps of their rollouts: the model versions that wrote them."""
        return self._buffer.stored_numbers("rollout_step", self.rows).astype(np.int64)

    @property
    def ages(self) -> Int64Array:
        """Steps since their rollouts."""
        return self._step - self.rollout_steps

    @cached_property
    def rewards(self) -> Float64Array:
        """Rewards when they were rolled out."""
        return self._buffer.stored_numbers("reward", self.rows).astype(np.float64)

    @cached_property
    def num_tokens(self) -> Int64Array:
        """Their lengths."""
        return self._buffer.stored_numbers("num_tokens", self.rows).astype(np.int64)

    @cached_property
    def num_replays(self) -> Int64Array:
        """How often each was replayed."""
        return self._buffer.num_replays(self.rows)
