"""Lines 4 to 8, 17 and 23 of Algorithm 1: the groups of a step, as its method plans them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import AheadEngine, PolicyEngine, RolloutRequest
from exgrpo_core.errors import EngineError, InputError
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw, StoredTrajectories
from exgrpo_core.methods.protocols import Draw
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import BucketCount, BufferEvent, BufferEventKind, StepReport
from exgrpo_core.types import GroupPlan, Prefix, RolloutGroup, Trajectory


class StepRollouts:
    """The groups of a step as they come to be, one round of the method's plan after another: an `OpenStep`.

    The first round is planned at once. `excluded` are questions that are not drawn for replay: those of the step
    before, if that is not over yet.
    """

    def __init__(self, state: ExGRPOState, config: ExGRPOConfig, step: int, excluded: Collection[int] = ()) -> None:
        self._state, self._config, self._excluded = state, config, excluded
        random_state = state.rng.bit_generator.state
        self.report = StepReport(step, state.delayed_start.is_open, groups=[], random_state=random_state)
        self.groups = self.report.groups
        self.batch_size = config.batch_size
        self.rollouts_per_question = config.rollouts_per_question
        self.replays_per_group = config.replays_per_group
        self.num_wanted = config.num_experiential_wanted
        self.fresh_questions: list[int] = []
        """What was taken from the stream of fresh questions."""
        self._policy_version: int | None = None
        self._drawn: list[int] = []
        method = state.strategies.method
        self._method_name = type(method).__name__
        self._rounds = method.plan(self)
        if not isinstance(self._rounds, Iterator):
            raise InputError(f"{self._method_name}: plan must yield lists of groups; write yield instead of return.")
        self.first_round = next(self._rounds, ())

    def draw(
        self, draw: Draw, num_questions: int, among: Iterable[int] | None = None, *, with_unsolved: bool = False
    ) -> dict[int, float]:
        """Return the questions of a draw with their weights; none before the delayed start (lines 4 to 8)."""
        if not (self._config.replays_experience and self.report.is_replay_open):
            return {}
        buffer = self._state.replay_buffer
        within = None
        if among is not None:
            within = np.array([*among], dtype=np.int64)
        elif with_unsolved:
            within = np.concatenate((buffer.questions(), buffer.members(0)))
        drawn = draw(QuestionColumns(buffer, self.report.step, within, self._excluded), num_questions, self._state.rng)
        if not isinstance(drawn, QuestionDraw):
            kind = type(drawn).__name__
            raise InputError(f"{self._method_name}: a draw must return what questions.take returns, got {kind}.")
        self.report.buckets = bucket_counts(buffer, drawn, self.report.buckets, with_unsolved)
        indices = drawn.question_indices.tolist()
        self._drawn += indices
        self.report.drawn_questions |= set(indices) - {group.question.index for group in self.groups}
        weights = [1.0] * len(indices) if drawn.weights is None else drawn.weights.tolist()
        return dict(zip(indices, weights, strict=True))

    def stored(self, question_index: int) -> StoredTrajectories:
        """Return what is stored of a question."""
        return StoredTrajectories(self._state.replay_buffer, question_index, self.report.step)

    def fresh(self, num_questions: int, drawn: Collection[int] = ()) -> list[GroupPlan]:
        """Plan rollouts of fresh questions, in the first call of reviewed ones too (line 17): see `OpenStep.fresh`."""
        state = self._state
        used = {*drawn, *self.fresh_questions, *(group.question.index for group in self.groups)}
        num_questions = min(num_questions, len(state.questions) - len(used))
        if num_questions <= 0:
            return []
        reviewed = [] if self.fresh_questions else self._draw_review(num_questions)
        skipped = state.skipped_questions(self._config)
        draw = state.stream.draw(num_questions - len(reviewed), skipped, {*used, *reviewed})
        if draw.ignored_skip:
            self.report.notices.append(
                "Every question left is retired: fresh questions are drawn from all of the data set."
            )
        indices = reviewed + draw.question_indices
        self.fresh_questions += indices
        return [GroupPlan(index, self.rollouts_per_question - int(index in state.external)) for index in indices]

    def roll_out(self, engine: PolicyEngine) -> None:
        """Line 23, for each round of the plan: K rollouts of fresh questions, K-1 if a trajectory will be replayed."""
        self._excluded = ()
        self.report.is_replay_open = self._state.delayed_start.is_open
        for plans in chain([self.first_round], self._rounds):
            self._generate(engine, plans)
            if self._policy_version is not None and plans is self.first_round:
                for trajectory in chain.from_iterable(group.trajectories for group in self.groups):
                    trajectory.policy_version = self._policy_version

    def begin_next(self, engine: PolicyEngine) -> None:
        """Plan the first round of the next step and begin its rollouts, under the policy that this step updates.

        This step may still retire or move its own questions, so the next one replays none of them: buckets of all
        others are as they will be then.
        """
        if not isinstance(engine, AheadEngine):
            raise EngineError("rollouts_ahead: this engine cannot generate during the update; set it to false.")
        used = {group.question.index for group in self.groups}
        following = StepRollouts(self._state, self._config, self.report.step + 1, used)
        if requests := following._requests(following.first_round):
            engine.begin_rollout(requests)
        following._policy_version = self.report.step - 1
        self._state.planned_ahead = following

    def _requests(self, plans: Sequence[GroupPlan]) -> list[RolloutRequest]:
        questions, buffer = self._state.questions, self._state.replay_buffer
        asked = [plan for plan in plans if plan.num_rollouts > 0]
        before = [group.question.index for group in self.groups if group.trajectories]
        (index, num_times), *_ = Counter(before + [plan.question_index for plan in asked]).most_common(1) or [(0, 0)]
        if num_times > 1:
            raise ValueError(f"the method plans rollouts of question {index} twice in a step; plan each question once.")
        rows = np.array([plan.prefix.row for plan in asked if plan.prefix], dtype=np.int64)
        stored = iter(buffer.experiences(rows) if rows.size else ())
        parts = [(next(stored).token_ids[: plan.prefix.num_tokens],) if plan.prefix else () for plan in asked]
        return [
            RolloutRequest(questions[plan.question_index], plan.num_rollouts, *part)
            for plan, part in zip(asked, parts, strict=True)
        ]

    def _generate(self, engine: PolicyEngine, plans: Sequence[GroupPlan]) -> None:
        """Add the groups of a round; those whose rollouts failed are counted, with a notice.

        Raises:
            ValueError: The engine broke its contract: another question, or another number of rollouts.
        """
        if self._drawn:
            self._state.replay_buffer.record_draws(np.array(self._drawn, dtype=np.int64), self.report.step)
            self._drawn.clear()
        requests = self._requests(plans)
        groups = engine.rollout(requests) if requests else []
        asked = [plan for plan in plans if plan.num_rollouts > 0]
        for request, group, plan in zip(requests, groups, asked, strict=True):
            is_same = group.question.index == request.question.index
            if not is_same or len(group.trajectories) not in (0, request.num_rollouts):
                raise ValueError(
                    f"engine.rollout: expected {request.num_rollouts} rollouts of question {request.question.index}, "
                    f"got {len(group.trajectories)} of question {group.question.index}."
                )
            group.plan = plan
            if plan.prefix is not None:
                self._mark_prefix(group.trajectories, plan.prefix, request)
        kept = [group for group in groups if group.trajectories]
        questions = self._state.questions
        alone = [plan for plan in plans if plan.num_rollouts <= 0]
        self.report.groups += kept
        self.report.groups += [RolloutGroup(questions[plan.question_index], [], plan=plan) for plan in alone]
        num_failed = len(groups) - len(kept)
        metrics = self.report.metrics
        metrics["rollouts/failed_groups"] = metrics.get("rollouts/failed_groups", 0.0) + num_failed
        if num_failed:
            self.report.notices.append(
                f"{num_failed} of {len(groups)} questions are left out: a rollout of each failed twice."
            )

    def _mark_prefix(self, trajectories: Sequence[Trajectory], prefix: Prefix, request: RolloutRequest) -> None:
        (stored_id,) = self._state.replay_buffer.stored_numbers("trajectory_id", np.array([prefix.row])).tolist()
        for trajectory in trajectories:
            if not np.array_equal(trajectory.token_ids[: prefix.num_tokens], request.prefix_ids):
                raise ValueError(f"engine.rollout: question {request.question.index} has rollouts without the prefix.")
            trajectory.num_prefix_tokens, trajectory.prefix_of = prefix.num_tokens, stored_id

    def _draw_review(self, num_fresh: int) -> list[int]:
        """Retired review: every `review_interval` steps a share of S takes fresh slots."""
        state, config = self._state, self._config
        if config.review_interval is None or self.report.step % config.review_interval != 0:
            return []
        retired = state.retired_set.sorted_members()
        num_reviewed = min(num_fresh, round(config.review_fraction * retired.size))
        reviewed = [int(index) for index in state.rng.choice(retired, num_reviewed, replace=False)]
        events = self.report.buffer_events
        events += [BufferEvent(BufferEventKind.REVIEWED, index, None, None, None) for index in reviewed]
        return reviewed


def bucket_counts(
    buffer: ReplayBuffer, draw: QuestionDraw, before: Sequence[BucketCount] = (), with_unsolved: bool = False
) -> list[BucketCount]:
    """Return buckets 0..K as they are at a draw, with what was drawn `before` in the step added.

    Probabilities are means over the drawn questions of all draws. Bucket 0 has what the others leave, if it was open.
    """
    sizes = buffer.bucket_sizes()
    num_drawn = np.bincount(buffer.buckets_of(draw.question_indices), minlength=sizes.size)
    shares = draw.bucket_probabilities
    unsolved = max(0.0, 1.0 - shares.sum()) if with_unsolved and shares.size and draw.question_indices.size else 0.0
    probabilities = np.array([unsolved, *shares])
    if num_before := sum(count.num_drawn for count in before):
        earlier = num_before * np.array([count.probability for count in before])
        probabilities = (earlier + num_drawn.sum() * probabilities) / (num_before + num_drawn.sum())
    for count in before:
        num_drawn[count.bucket] += count.num_drawn
    columns = zip(
        sizes.tolist(),
        probabilities.tolist(),
        num_drawn.tolist(),
        [0, *draw.overflows.tolist()],
        strict=True,
    )
    return [BucketCount(bucket, *values) for bucket, values in enumerate(columns)]
