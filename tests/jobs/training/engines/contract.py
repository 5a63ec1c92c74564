"""What every `PolicyEngine` must do: subclass `PolicyEngineContract` in a test module and give its three fixtures.

`engine` is a fresh engine whose policy is random and whose rewards vary inside a group; `config` is what it was made
with; `questions` are at least `config.batch_size` questions with prompts of different lengths. The optimizer's steps
must be large enough to move log-probs visibly (learning rate about 1e-3 on a tiny model).
"""

import dataclasses
import math

import numpy as np

from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.engine import PolicyEngine, RolloutRequest
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch, TrainingRow
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import METRICS
from exgrpo_core.types import Experience, RolloutGroup
from tests.jobs.training.engines.tiny_models import END

SCORE_TOLERANCE = 1e-4
OUTCOMES = {"correct", "wrong", "unparsed", "timeout", "crash"}


def requests_for(questions, counts):
    return [RolloutRequest(question, count) for question, count in zip(questions, counts, strict=False)]


def stored(groups: list[RolloutGroup]) -> tuple[list, list[Experience]]:
    questions, candidates = [], []
    for group in groups:
        for trajectory in group.trajectories:
            questions.append(group.question)
            row = len(candidates)
            candidates.append(
                Experience(
                    row, row, trajectory.question_index, 1, trajectory.reward, trajectory.token_ids,
                    trajectory.log_probs.copy(),
                ),
            )  # fmt: skip
    return questions, candidates


def training_rows(groups: list[RolloutGroup], advantages, is_replayed=False) -> list[TrainingRow]:
    rows = [(group.question.prompt_ids, trajectory) for group in groups for trajectory in group.trajectories]
    return [
        TrainingRow(prompt, item.token_ids, item.log_probs, float(advantage), is_replayed)
        for (prompt, item), advantage in zip(rows, advantages, strict=True)
    ]


def score(engine, groups):
    return engine.entropies(*stored(groups))


class PolicyEngineContract:
    def test_groups_come_in_order_each_with_the_asked_number_of_rollouts(self, engine: PolicyEngine, questions):
        requests = requests_for([questions[2], questions[0], questions[1], questions[0]], [3, 1, 4, 2])
        groups = engine.rollout(requests)
        assert [group.question for group in groups] == [request.question for request in requests]
        assert [len(group.trajectories) for group in groups] == [3, 1, 4, 2]
        for group in groups:
            assert all(trajectory.question_index == group.question.index for trajectory in group.trajectories)
            assert not group.has_replay

    def test_no_request_gives_no_group_and_no_candidate_no_score(self, engine: PolicyEngine):
        assert engine.rollout([]) == []
        scores = engine.entropies([], [])
        assert len(scores.log_probs) == len(scores.entropies) == 0

    def test_trajectories_are_aligned_graded_and_within_the_limit(self, engine: PolicyEngine, config, questions):
        for group in engine.rollout(requests_for(questions, [4] * 6)):
            for trajectory in group.trajectories:
                assert trajectory.token_ids.dtype == np.int32
                assert trajectory.log_probs.dtype == np.float32
                assert 1 <= trajectory.token_ids.size <= config.max_response_tokens
                assert trajectory.log_probs.shape == trajectory.token_ids.shape
                assert np.isfinite(trajectory.log_probs).all()
                assert (trajectory.log_probs <= 0.0).all()
                assert trajectory.entropies is None or trajectory.entropies.shape == trajectory.token_ids.shape
                assert trajectory.token_ids.size == config.max_response_tokens or not trajectory.is_truncated
                assert trajectory.is_truncated is bool(trajectory.token_ids[-1] != END)
                assert trajectory.verdict in OUTCOMES
                assert math.isfinite(trajectory.reward)

    def test_rollouts_begin_with_their_prefix_and_are_scored_as_a_whole(self, engine: PolicyEngine, config, questions):
        prefix = np.array([5, 7, 9], dtype=np.int32)
        first = RolloutRequest(questions[0], 3, prefix)
        groups = engine.rollout([RolloutRequest(questions[1], 2), first, RolloutRequest(questions[2], 1, prefix[:1])])
        assert [len(group.trajectories) for group in groups] == [2, 3, 1]
        for group, size in zip(groups, (0, 3, 1), strict=True):
            for trajectory in group.trajectories:
                assert trajectory.token_ids[:size].tolist() == prefix[:size].tolist()
                assert size < trajectory.token_ids.size <= config.max_response_tokens
                assert trajectory.log_probs.shape == trajectory.token_ids.shape
                assert trajectory.is_truncated is bool(trajectory.token_ids[-1] != END)
        assert len({item.token_ids.tobytes() for item in groups[1].trajectories}) > 1
        scores = score(engine, groups)
        for item, log_probs in zip(
            [item for group in groups for item in group.trajectories], scores.log_probs, strict=True
        ):
            np.testing.assert_allclose(item.log_probs, log_probs, atol=SCORE_TOLERANCE)

    def test_rollouts_are_samples_and_differ(self, engine: PolicyEngine, questions):
        (group,) = engine.rollout(requests_for(questions, [16]))
        assert len({entry.token_ids.tobytes() for entry in group.trajectories}) > 1
        (again,) = engine.rollout(requests_for(questions, [16]))
        assert [trajectory.token_ids.tolist() for trajectory in group.trajectories] != [
            item.token_ids.tolist() for item in again.trajectories
        ]

    def test_scores_of_fresh_rollouts_are_those_of_their_rollout(self, engine: PolicyEngine, questions):
        groups = engine.rollout(requests_for(questions, [4] * 6))
        scores = score(engine, groups)
        fresh = [trajectory for group in groups for trajectory in group.trajectories]
        for item, log_probs, entropies in zip(fresh, scores.log_probs, scores.entropies, strict=True):
            np.testing.assert_allclose(log_probs, item.log_probs, atol=SCORE_TOLERANCE)
            assert entropies.shape == item.token_ids.shape
            if item.entropies is not None:
                np.testing.assert_allclose(entropies, item.entropies, atol=SCORE_TOLERANCE)

    def test_scores_follow_the_order_of_candidates(self, engine: PolicyEngine, questions):
        owners, candidates = stored(engine.rollout(requests_for(questions, [2] * 6)))
        forward = engine.entropies(owners, candidates)
        backward = engine.entropies(owners[::-1], candidates[::-1])
        for one, other in zip(forward.log_probs, backward.log_probs[::-1], strict=True):
            np.testing.assert_allclose(one, other, atol=SCORE_TOLERANCE)
        for entropies in forward.entropies:
            assert np.isfinite(entropies).all()
            assert (entropies >= -SCORE_TOLERANCE).all()

    def test_neither_rollouts_nor_scores_change_the_policy(self, engine: PolicyEngine, questions):
        groups = engine.rollout(requests_for(questions, [2] * 4))
        before = score(engine, groups)
        engine.rollout(requests_for(questions, [2] * 4))
        for one, other in zip(before.log_probs, score(engine, groups).log_probs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)

    def test_an_update_makes_good_trajectories_likelier_and_bad_ones_rarer(
        self, engine: PolicyEngine, config, questions
    ):
        groups = engine.rollout(requests_for(questions, [2] * 4))
        advantages = [1.0, -1.0] * 4
        before = score(engine, groups)
        objective = build_objective(dataclasses.replace(config, entropy_coefficient=0.0), is_replay_open=True)
        engine.update([MiniBatch(training_rows(groups, advantages), 0)] * 3, objective)
        gains = [
            float((new - old).sum()) * advantage
            for new, old, advantage in zip(score(engine, groups).log_probs, before.log_probs, advantages, strict=True)
        ]
        assert np.mean(gains) > 0.01

    def test_an_update_returns_declared_finite_metrics(self, engine: PolicyEngine, config, questions):
        groups = engine.rollout(requests_for(questions, [3] * 4))
        rows = training_rows(groups[:2], [1.0, -0.5, -0.5] * 2)
        rows += training_rows(groups[2:], [1.0, -0.5, -0.5] * 2, is_replayed=True)
        metrics = engine.update([MiniBatch(rows)], build_objective(config, is_replay_open=True))
        assert metrics.keys() <= METRICS.keys()
        assert {"loss/policy", "loss/total", "ratio/fresh_mean", "optim/gradient_norm"} <= metrics.keys()
        assert all(math.isfinite(value) for value in metrics.values())
        assert metrics["optim/gradient_norm"] > 0.0

    def test_ratios_are_one_before_the_first_step_and_follow_the_behavior_policy(
        self, engine: PolicyEngine, config, questions
    ):
        groups = engine.rollout(requests_for(questions, [2] * 4))
        rows = training_rows(groups[:2], [1.0, -1.0] * 2)
        halved = [
            row._replace(behavior_log_probs=row.behavior_log_probs + np.float32(math.log(2.0)))
            for row in training_rows(groups[2:], [1.0, -1.0] * 2, is_replayed=True)
        ]
        metrics = engine.update([MiniBatch(rows + halved)], build_objective(config, is_replay_open=True))
        assert abs(metrics["ratio/fresh_mean"] - 1.0) < 1e-3
        assert abs(metrics["ratio/replayed_mean"] - 0.5) < 1e-3
        assert metrics["generator/log_prob_gap"] < SCORE_TOLERANCE

    def test_algorithm_one_runs_on_the_engine(self, engine: PolicyEngine, config, questions, tmp_path):
        state = ExGRPOState.create(tmp_path, questions, config)
        reports = [exgrpo_step(state, engine, config) for _ in range(4)]
        assert [report.step for report in reports] == [1, 2, 3, 4]
        assert all(report.metrics.keys() <= METRICS.keys() for report in reports)
        assert all("batch/questions_left" in report.metrics for report in reports)
        replaying = [report.metrics for report in reports if report.metrics["replay/num_replayed"]]
        assert all(metrics["variance/bound_independent"] <= metrics["variance/bound_general"] for metrics in replaying)
        assert sum(report.metrics["replay/num_replayed"] for report in reports) > 0
