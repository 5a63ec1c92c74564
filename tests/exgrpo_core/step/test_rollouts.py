"""The groups of a step as a method asks for them, call after call."""

from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from exgrpo_core.errors import InputError
from exgrpo_core.methods.protocols import QuestionSampler, ReplayMethod
from exgrpo_core.step.rollouts import StepRollouts
from exgrpo_core.step_report import BufferEventKind
from exgrpo_core.types import GroupPlan, RolloutGroup
from tests.exgrpo_core.builders import small_config, trajectory
from tests.exgrpo_core.toy_engine import ToyEngine
from tests.exgrpo_core.toy_runs import MEDIUM_RATES, new_state


def empty_step(state, config):
    """Return a step whose method plans nothing by itself."""
    state.strategies = replace(state.strategies, method=SimpleNamespace(plan=lambda _step: iter(())))
    return StepRollouts(state, config, 1)


def test_questions_that_failed_in_any_round_are_counted(tmp_path):
    state = new_state(tmp_path, small_config())
    step = empty_step(state, small_config())
    step.first_round, step._rounds = [GroupPlan(0, 2), GroupPlan(1, 2)], iter([[GroupPlan(2, 2)], [GroupPlan(3, 2)]])
    engine = ToyEngine(MEDIUM_RATES)
    engine.rollout = lambda requests: [
        RolloutGroup(
            asked.question, [trajectory(asked.question.index, [5], 1.0)] * 2 * (asked.question.index in (1, 3))
        )
        for asked in requests
    ]
    step.roll_out(engine)
    assert [group.question.index for group in step.groups] == [1, 3]
    assert step.report.metrics["rollouts/failed_groups"] == 2.0


@dataclass(frozen=True)
class ReturnsGroups(ReplayMethod):
    """A method that returns its groups."""

    name = "returns_groups"
    rounds: object = ()

    def plan(self, _step):
        return self.rounds


@dataclass(frozen=True)
class DrawsIndices(QuestionSampler):
    """A method that draws an array."""

    name = "draws_indices"

    def draw(self, questions, num_questions, _rng):
        return questions.indices[:num_questions]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (ReturnsGroups([GroupPlan(3, 2)]), "ReturnsGroups: plan must yield lists of groups; write yield instead of"),
        (ReturnsGroups(None), "ReturnsGroups: plan must yield lists of groups; write yield instead of return."),
        (DrawsIndices(), "DrawsIndices: a draw must return what questions.take returns, got ndarray."),
    ],
)
def test_a_method_that_gives_something_else_is_refused_by_the_name_of_its_class(tmp_path, method, message):
    config = small_config(start_pass_rate=None)
    state = new_state(tmp_path, config)
    state.strategies = replace(state.strategies, method=method)
    with pytest.raises(InputError, match=message):
        StepRollouts(state, config, 1)


def test_two_calls_of_one_round_return_different_questions_as_many_as_the_data_has(tmp_path):
    config = small_config(experience_ratio=0.0)
    step = empty_step(new_state(tmp_path, config, num_questions=10), config)
    first, second, third = step.fresh(6), step.fresh(3, drawn=[9]), step.fresh(5)
    indices = [plan.question_index for plan in first + second + third]
    assert len(first) == 6
    assert Counter(indices).most_common(1)[0][1] == 1
    assert len(indices) == 10
    assert 9 not in {plan.question_index for plan in second}


@pytest.mark.parametrize("with_unsolved", [False, True])
def test_a_draw_among_some_questions_has_no_other_whether_unsolved_ones_are_asked_for_or_not(tmp_path, with_unsolved):
    config = small_config()
    state = new_state(tmp_path, config)
    state.replay_buffer.insert([trajectory(index, [1], 1.0) for index in (2, 4, 6, 8)])
    state.replay_buffer.set_bucket(2, 3)
    step = empty_step(state, config)

    def take_all(questions, _num_questions, _rng):
        return questions.take(questions.indices, np.zeros(questions.indices.size))

    assert [*step.draw(take_all, 9, among=[2, 6, 7], with_unsolved=with_unsolved)] == [2, 6]
    assert [*step.draw(take_all, 9, with_unsolved=with_unsolved)] == ([2, 4, 6, 8] if with_unsolved else [2])


def test_bucket_probabilities_of_two_draws_are_weighed_by_what_each_drew(tmp_path):
    config = small_config()
    state = new_state(tmp_path, config)
    state.replay_buffer.insert([trajectory(index, [1], 1.0) for index in range(8)])
    for index in range(8):
        state.replay_buffer.set_bucket(index, index // 2)
    step = empty_step(state, config)

    def take(*chosen):
        return lambda questions, _num, _rng: questions.take(
            np.array(chosen, np.int64), np.full(questions.indices.size, 0.25)
        )

    step.draw(take(2, 4, 5), 3, among=[2, 3, 4, 5])
    assert [bucket.probability for bucket in step.report.buckets] == [0.0, 0.5, 0.5, 0.0, 0.0]
    step.draw(take(0), 1, among=[0, 1, 6, 7], with_unsolved=True)
    assert [bucket.probability for bucket in step.report.buckets] == [0.125, 0.375, 0.375, 0.125, 0.0]
    assert [bucket.num_drawn for bucket in step.report.buckets] == [1, 1, 2, 0, 0]
    step.draw(take(), 1, among=[6], with_unsolved=True)
    assert [bucket.probability for bucket in step.report.buckets] == [0.125, 0.375, 0.375, 0.125, 0.0]


def test_a_review_is_drawn_by_the_first_call_of_a_step_only(tmp_path):
    config = small_config(review_interval=1, review_fraction=0.4)  # of four: 1.6, so two
    state = new_state(tmp_path, config)
    for index in (3, 5, 7, 11):
        state.retired_set.add(index)
    step = empty_step(state, config)
    first, second = step.fresh(4), step.fresh(4)
    reviewed = [event.question_index for event in step.report.buffer_events if event.kind is BufferEventKind.REVIEWED]
    assert len(reviewed) == 2
    assert [plan.question_index for plan in first[:2]] == reviewed
    assert not {plan.question_index for plan in second} & {3, 5, 7, 11}
