"""Rollouts of the next step that are generated during the update: one step off-policy."""

import time

import numpy as np
import pytest

from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.config import SamplerCorrection
from exgrpo_core.errors import EngineError
from exgrpo_core.step.rollouts import StepRollouts
from exgrpo_core.types import RolloutGroup
from tests.exgrpo_core.builders import question, small_config
from tests.exgrpo_core.toy_engine import ToyEngine
from tests.exgrpo_core.toy_runs import MEDIUM_RATES, NUM_QUESTIONS, new_state

LOG_PROB = -0.5
DRIFT = 0.1
"""Nats by which each update makes every token rarer."""
AHEAD = {"rollouts_ahead": True, "sampler_correction": SamplerCorrection.TRUNCATE}
NUM_STEPS = 6


class AheadToyEngine(ToyEngine):
    """Its policy is its number of updates: each token's log-prob is `LOG_PROB - DRIFT * updates`."""

    num_updates = 0
    begun = None

    def begin_rollout(self, requests):
        self.calls.append("begin")
        assert self.begun is None
        self.begun = requests, self._generate(requests), self.num_updates

    def rollout(self, requests):
        if self.begun is None:
            groups, version = self._generate(requests), self.num_updates
        else:
            begun, groups, version = self.begun
            assert requests == begun
            self.begun = None
        self.calls.append("rollout")
        self.requests = list(requests)
        for trajectory in (item for group in groups for item in group.trajectories):
            trajectory.sampler_log_probs = self._log_probs(trajectory, version)
            trajectory.log_probs = self._log_probs(trajectory, self.num_updates)
        return groups

    def _generate(self, requests):
        return [
            RolloutGroup(item.question, [self._trajectory(item.question) for _ in range(item.num_rollouts)])
            for item in requests
        ]

    def _log_probs(self, trajectory, version):
        return np.full(trajectory.token_ids.size, LOG_PROB - DRIFT * version, dtype=np.float32)

    def update(self, mini_batches, objective):
        self.num_updates += 1
        return super().update(mini_batches, objective)


def run_ahead(folder, num_steps=NUM_STEPS, state=None, engine=None, config=None):
    config = config or small_config(**AHEAD)
    state, engine = state or new_state(folder, config), engine or AheadToyEngine(MEDIUM_RATES)
    first, last = state.step + 1, state.step + num_steps
    return state, engine, [exgrpo_step(state, engine, config, is_last=i == last) for i in range(first, last + 1)]


def fresh_of(report):
    return [item for group in report.groups for item in group.trajectories]


def test_each_step_but_the_last_begins_the_next_ones_rollouts_before_it_scores_and_updates(tmp_path):
    state, engine, _ = run_ahead(tmp_path, 3)
    calls = [call for call in engine.calls if call != "entropies"]
    assert calls == ["rollout", "begin", "update", "rollout", "begin", "update", "rollout", "update"]
    assert state.planned_ahead is None
    assert engine.calls.index("entropies") > engine.calls.index("begin")


@pytest.mark.parametrize(
    ("changes", "versions", "replays"),
    [(AHEAD, [0, 0, 1, 2, 3, 4], [False, False, True]), ({}, [*range(6)], [False, True, True])],
)
def test_every_fresh_trajectory_knows_the_policy_that_wrote_it_and_replay_begins_a_step_later(
    tmp_path, changes, versions, replays
):
    _, _, reports = run_ahead(tmp_path, config=small_config(**changes))
    assert [{item.policy_version for item in fresh_of(report)} for report in reports] == [{i} for i in versions]
    assert [{item.rollout_step for item in fresh_of(report)} for report in reports] == [{i} for i in range(1, 7)]
    assert [report.metrics["replay/num_replayed"] > 0 for report in reports[:3]] == replays


def test_ratios_are_against_the_policy_that_wrote_the_tokens(tmp_path):
    state, engine, reports = run_ahead(tmp_path)
    rows = [row for batch in engine.mini_batches[-2:] for row in batch.rows if not row.is_replayed]
    # pi_theta / pi_old times the weight pi_old / mu: one update lies between.
    assert rows
    for row in rows:
        assert row.weights == pytest.approx(np.exp(-DRIFT), abs=1e-6)
        assert row.behavior_log_probs - np.log(row.weights) == pytest.approx(LOG_PROB - DRIFT * 4, abs=1e-6)
    known = {item.trajectory_id: item for report in reports for item in fresh_of(report)}
    stored = state.replay_buffer.experiences(np.arange(len(state.replay_buffer.stored_rows())))
    assert len({item.rollout_step for item in stored}) > 1
    for item in stored:
        version = known[item.trajectory_id].policy_version
        assert item.behavior_log_probs == pytest.approx(LOG_PROB - DRIFT * version, abs=1e-6)


def test_a_step_replays_no_question_of_the_step_before(tmp_path):
    _, _, reports = run_ahead(tmp_path)
    replayed = [{group.question.index for group in report.groups if group.has_replay} for report in reports]
    assert any(replayed)
    for before, after in zip(reports, replayed[1:], strict=False):
        assert not {group.question.index for group in before.groups} & after
    assert all(len(report.groups) == 8 for report in reports)


def test_as_many_questions_are_replayed_as_are_wanted_or_as_are_not_of_the_step_before(tmp_path):
    config, available = small_config(**AHEAD), []
    state = new_state(tmp_path, config, num_questions=16)

    class Watched(AheadToyEngine):
        def begin_rollout(self, requests):
            current = [item.question.index for item in self.requests]
            available.append(np.setdiff1d(state.replay_buffer.questions(), current).size)
            super().begin_rollout(requests)

    _, _, reports = run_ahead(tmp_path, 20, state, Watched([0.15] * 16))
    wanted = config.num_experiential_wanted
    replayed = [report.metrics["replay/num_replayed"] for report in reports[1:]]
    assert replayed == [min(wanted, number) for number in available]
    assert wanted in replayed
    assert 0 < min(filter(None, available)) < wanted
    assert [sum(bucket.num_drawn for bucket in report.buckets) for report in reports[1:]] == replayed


def test_resumed_run_draws_anew_with_the_same_fresh_questions_and_generates_by_the_newer_policy(tmp_path):
    config, questions = small_config(**AHEAD), [question(i) for i in range(NUM_QUESTIONS)]
    state, engine = new_state(tmp_path, config), AheadToyEngine(MEDIUM_RATES)
    for _ in range(3):
        exgrpo_step(state, engine, config)
    planned = state.planned_ahead
    drawn = [plan.question_index for plan in planned.first_round if plan.candidates.size]
    assert drawn
    waiting = np.setdiff1d(np.arange(NUM_QUESTIONS), planned.fresh_questions)[-2:].tolist()
    state.stream.load_state_dict(state.stream.state_dict() | {"deferred": waiting})
    state.save(tmp_path / "saved")
    restored = ExGRPOState.restore(tmp_path / "buffer", tmp_path / "saved", questions, config)
    assert not restored.replay_buffer.num_draws(np.array(drawn)).any()
    assert restored.stream.state_dict()["deferred"] == [*planned.fresh_questions, *waiting]
    engine.begun = None
    report = exgrpo_step(restored, engine, config, is_last=True)
    fresh = [group.question.index for group in report.groups if not group.has_replay]
    replayed = {group.question.index for group in report.groups} - {*fresh}
    assert replayed
    begun = planned.fresh_questions
    assert fresh[: len(begun)] == [index for index in begun if index not in replayed][: len(fresh)]
    assert {item.policy_version for item in fresh_of(report)} == {3}


def test_begin_counts_as_time_of_rollouts(tmp_path):
    class Slow(AheadToyEngine):
        def begin_rollout(self, requests):
            time.sleep(0.05)
            super().begin_rollout(requests)

    _, _, reports = run_ahead(tmp_path, 2, engine=Slow(MEDIUM_RATES))
    assert reports[0].metrics["seconds/rollout"] >= 0.05


def test_nothing_is_begun_for_a_step_that_only_replays(tmp_path):
    config = small_config(question_selection="trinity", trajectory_selection="newest", experience_ratio=1.0, **AHEAD)
    state, engine, _ = run_ahead(tmp_path, 1, config=config)
    StepRollouts(state, config, 1).begin_next(engine)
    assert [plan.num_rollouts for plan in state.planned_ahead.first_round] == [0] * 8
    assert "begin" not in engine.calls


def test_it_needs_an_engine_that_generates_during_updates(tmp_path):
    config = small_config(**AHEAD)
    with pytest.raises(EngineError):
        exgrpo_step(new_state(tmp_path, config), ToyEngine(MEDIUM_RATES), config)
