"""Lines 4 to 8, 17 and 23 of Algorithm 1: which questions are replayed, which are fresh, and the rollouts of both."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import AheadEngine, PolicyEngine, RolloutRequest
from exgrpo_core.errors import EngineError
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.methods.protocols import QuestionColumns, QuestionDraw
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import BucketCount, BufferEvent, BufferEventKind, DrawnQuestions, StepReport
from exgrpo_core.types import Int64Array, RolloutGroup


@dataclass(slots=True)
class StepRollouts:
    """The groups of a step as they come to be, in the order of the algorithm: draws, then rollouts.

    It is an `OpenStep` for methods that add to the paper's groups.
    """

    state: ExGRPOState
    engine: PolicyEngine
    config: ExGRPOConfig
    report: StepReport
    groups: list[RolloutGroup] = field(default_factory=list)
    excluded: Collection[int] = ()
    """Questions that are not drawn for replay: those of the step before, where it is not over yet."""

    @property
    def batch_size(self) -> int:
        """B."""
        return self.config.batch_size

    @property
    def num_wanted(self) -> int:
        """floor(rho B)."""
        return self.config.num_experiential_wanted

    def draw(self) -> DrawnQuestions:
        """Lines 4 to 8 and 17: questions to replay, unless a method draws them after the rollouts, and fresh ones."""
        draws_first, random_state = (
            self.state.strategies.question_sampler.draws_first,
            self.state.rng.bit_generator.state,
        )
        replay_weights = self._choose_replays(self.num_wanted) if draws_first else {}
        fresh, report = self.draw_fresh(replay_weights), self.report
        drawn = DrawnQuestions(fresh, replay_weights, report.buckets, report.buffer_events, report.notices)
        drawn.random_state = random_state
        return drawn

    def begin_next(self) -> None:
        """Draw the questions of the next step and begin its rollouts, under the policy that this step updates.

        This step may still retire or move its own questions, so the next one replays none of them: buckets of all
        others are as they will be then.
        """
        if not isinstance(self.engine, AheadEngine):
            raise EngineError("rollouts_ahead: this engine cannot generate during the update; set it to false.")
        state, used = self.state, {group.question.index for group in self.groups}
        report = StepReport(self.report.step + 1, state.delayed_start.is_open, groups=[])
        following = StepRollouts(state, self.engine, self.config, report, excluded=used)
        drawn = following.draw()
        if requests := self._requests(following._asked(drawn)):
            self.engine.begin_rollout(requests)
        drawn.policy_version = self.report.step - 1
        state.drawn_ahead = drawn

    def draw_replays(self, num_wanted: int, among: Int64Array | None = None) -> dict[int, float]:
        """Lines 5 to 8: n = min(floor(rho B), |E|) questions, with replay weights; none before the delayed start."""
        weights = self._choose_replays(num_wanted, among)
        self._record_draws(weights)
        return weights

    def _choose_replays(self, num_wanted: int, among: Int64Array | None = None) -> dict[int, float]:
        if not (self.config.replays_experience and self.report.is_replay_open):
            return {}
        buffer, sampler = self.state.replay_buffer, self.state.strategies.question_sampler
        columns = QuestionColumns(buffer, self.report.step, among, self.excluded)
        draw = sampler.draw(columns, num_wanted, self.state.rng)
        self.report.buckets = bucket_counts(buffer, draw)
        weights = [1.0] * draw.question_indices.size if draw.weights is None else draw.weights.tolist()
        return dict(zip(draw.question_indices.tolist(), weights, strict=True))

    def _record_draws(self, drawn: Collection[int]) -> None:
        if drawn:
            self.state.replay_buffer.record_draws(np.array([*drawn], dtype=np.int64), self.report.step)

    def draw_fresh(self, replayed: Collection[int]) -> list[int]:
        """Line 17: B - n fresh questions, never one that is replayed in this step; retired ones as configured."""
        num_fresh = self.batch_size - len(replayed)
        reviewed = self._draw_review(num_fresh)
        skipped = self.state.skipped_questions(self.config)
        draw = self.state.stream.draw(num_fresh - len(reviewed), skipped, {*replayed, *reviewed})
        if draw.ignored_skip:
            self.report.notices.append(
                "Every question left is retired: fresh questions are drawn from all of the data set."
            )
        return reviewed + draw.question_indices

    def roll_out(self, drawn: DrawnQuestions) -> None:
        """Line 23: K rollouts of fresh questions, K-1 where a trajectory will be replayed; then what a method adds."""
        report = self.report
        report.buckets, report.buffer_events, report.notices = drawn.buckets, drawn.buffer_events, drawn.notices
        report.random_state = drawn.random_state
        self._record_draws(drawn.replay_weights)
        self._generate(self._asked(drawn))
        if drawn.policy_version is not None:
            for trajectory in chain.from_iterable(group.trajectories for group in self.groups):
                trajectory.policy_version = drawn.policy_version
        self.state.strategies.question_sampler.complete(self)

    def roll_out_more(self, num_questions: int) -> None:
        """Add the groups of further fresh questions, K rollouts each, as many as there are."""
        used = {group.question.index for group in self.groups}
        num_questions = min(num_questions, len(self.state.questions) - len(used))
        if num_questions > 0:
            draw = self.state.stream.draw(num_questions, self.state.skipped_questions(self.config), used)
            self._generate([(index, self.config.rollouts_per_question, None) for index in draw.question_indices])

    def replay_alone(self, question_index: int, weight: float) -> None:
        """Add a group of a question that has no rollouts: all its candidates are replayed."""
        self.groups.append(RolloutGroup(self.state.questions[question_index], [], replay_weight=weight))

    def _asked(self, drawn: DrawnQuestions) -> list["_Asked"]:
        size, external = self.config.rollouts_per_question, self.state.external
        fresh: list[_Asked] = [(index, size - int(index in external), None) for index in drawn.fresh]
        return fresh + [(index, self._num_beside(index), weight) for index, weight in drawn.replay_weights.items()]

    def _requests(self, asked: Sequence["_Asked"]) -> list[RolloutRequest]:
        return [RolloutRequest(self.state.questions[index], number) for index, number, _ in asked if number > 0]

    def _generate(self, asked: Sequence["_Asked"]) -> None:
        """Add the groups that are asked for; those whose rollouts failed are counted, with a notice.

        Raises:
            ValueError: The engine broke its contract: another question, or another number of rollouts.
        """
        rolled_out = [item for item in asked if item[1] > 0]
        requests = self._requests(asked)
        groups = self.engine.rollout(requests)
        for request, group, (_, _, weight) in zip(requests, groups, rolled_out, strict=True):
            is_same = group.question.index == request.question.index
            if not is_same or len(group.trajectories) not in (0, request.num_rollouts):
                raise ValueError(
                    f"engine.rollout: expected {request.num_rollouts} rollouts of question {request.question.index}, "
                    f"got {len(group.trajectories)} of question {group.question.index}."
                )
            group.replay_weight = weight
        kept = [group for group in groups if group.trajectories]
        self.groups += kept
        for index, number, weight in asked:
            if number <= 0 and weight is not None:
                self.replay_alone(index, weight)
        num_failed = len(groups) - len(kept)
        metrics = self.report.metrics
        metrics["rollouts/failed_groups"] = metrics.get("rollouts/failed_groups", 0.0) + num_failed
        if num_failed:
            self.report.notices.append(
                f"{num_failed} of {len(groups)} questions are left out: a rollout of each failed twice."
            )

    def _num_beside(self, index: int) -> int:
        """Fresh rollouts of a question: K-1 in the paper, whose r is 1."""
        num_replays = self.config.replays_per_group
        if num_replays > 1:
            num_replays = min(num_replays, int(self.state.replay_buffer.num_stored(np.array([index]))[0]))
        sampler = self.state.strategies.question_sampler
        return sampler.num_rollouts(self.config.rollouts_per_question, num_replays)

    def _draw_review(self, num_fresh: int) -> list[int]:
        """Retired review: every `review_interval` steps a share of S takes fresh slots."""
        state, config = self.state, self.config
        if config.review_interval is None or self.report.step % config.review_interval != 0:
            return []
        retired = state.retired_set.sorted_members()
        num_reviewed = min(num_fresh, round(config.review_fraction * retired.size))
        reviewed = [int(index) for index in state.rng.choice(retired, num_reviewed, replace=False)]
        events = self.report.buffer_events
        events += [BufferEvent(BufferEventKind.REVIEWED, index, None, None, None) for index in reviewed]
        return reviewed


_Asked = tuple[int, int, float | None]
"""Question, number of rollouts, and the weight of its replays where it was drawn to be replayed."""


def bucket_counts(buffer: ReplayBuffer, draw: QuestionDraw) -> list[BucketCount]:
    """Return buckets 0..K as they are at a draw: bucket 0 is never drawn."""
    sizes = buffer.bucket_sizes()
    num_drawn = np.bincount(buffer.buckets_of(draw.question_indices), minlength=sizes.size)
    columns = zip(
        sizes.tolist(),
        [0.0, *draw.bucket_probabilities.tolist()],
        num_drawn.tolist(),
        [0, *draw.overflows.tolist()],
        strict=True,
    )
    return [BucketCount(bucket, *values) for bucket, values in enumerate(columns)]
