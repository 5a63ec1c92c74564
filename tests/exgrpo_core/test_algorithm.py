import itertools
import math

import numpy as np
import pytest

from exgrpo_core import exgrpo_step
from exgrpo_core.config import Clipping, RetiredRule, RewardKind, ZeroCorrectRule
from exgrpo_core.step_report import METRICS, BufferEventKind
from tests.exgrpo_core.builders import small_config
from tests.exgrpo_core.toy_engine import ToyEngine
from tests.exgrpo_core.toy_runs import MEDIUM_RATES, NUM_QUESTIONS, new_state, run


def test_first_step_is_on_policy_and_later_ones_replay_half(tmp_path):
    config = small_config()
    _, engine, reports = run(tmp_path, config, 3)
    assert [group.has_replay for group in reports[0].groups] == [False] * 8
    num_expected = min(4, int(reports[0].metrics["buffer/num_drawable"]))
    assert sum(group.has_replay for group in reports[1].groups) == num_expected == 4
    assert engine.calls == ["rollout", "update", "rollout", "entropies", "update", "rollout", "entropies", "update"]


def test_every_step_has_its_share_of_replays_whole_groups_and_numbered_trajectories(tmp_path):
    config = small_config(experience_ratio=0.7, mini_batch_size=8)
    state, _, reports = run(tmp_path, config, 12)
    for before, report in itertools.pairwise(reports):
        expected = min(math.floor(0.7 * 8), int(before.metrics["buffer/num_drawable"]))
        assert report.metrics["replay/num_replayed"] == expected
        assert len({group.question.index for group in report.groups}) == len(report.groups) == 8
        for group in report.groups:
            assert len(group.trajectories) + int(group.has_replay) == 4
            assert group.rewards.shape == group.advantages.shape == (4,)
            assert abs(float(group.advantages.sum())) < 1e-5
        for selection in report.selections:
            assert selection.chosen == (int(np.argmin(selection.entropies)),)
        assert report.metrics.keys() <= METRICS.keys()
    assert any(selection.entropies.size > 1 for report in reports for selection in report.selections)
    ids = [t.trajectory_id for report in reports for group in report.groups for t in group.trajectories]
    assert ids == list(range(state.next_trajectory_id))
    assert reports[-1].metrics["rollouts/fresh_total"] == len(ids)


@pytest.mark.parametrize(("rule", "bucket"), [(ZeroCorrectRule.BUCKET_ZERO, 0), (ZeroCorrectRule.KEEP_BUCKET, 2)])
def test_buffered_question_without_success_follows_the_zero_correct_rule(tmp_path, rule, bucket):
    config = small_config(zero_correct=rule, batch_size=2, mini_batch_size=1, experience_ratio=0.4)
    state = new_state(tmp_path, config, num_questions=2)
    engine = ToyEngine([0.5, 0.5], seed=5)
    while 2 not in (state.replay_buffer.bucket_of(0), state.replay_buffer.bucket_of(1)):
        exgrpo_step(state, engine, config)
    index = 0 if state.replay_buffer.bucket_of(0) == 2 else 1
    engine.success_rates = [0.0, 0.0]
    exgrpo_step(state, engine, config)  # rho B = 0.8: no replay, so both questions are drawn as fresh ones
    assert state.replay_buffer.bucket_of(index) == bucket


def test_nothing_is_collected_or_replayed_before_the_delayed_start(tmp_path):
    config = small_config(start_pass_rate=0.9)
    state, engine, reports = run(tmp_path, config, 4)
    assert not any(report.is_replay_open for report in reports)
    assert state.replay_buffer.num_trajectories == 0
    engine.success_rates = [1.0, 0.9] * 20
    opening = exgrpo_step(state, engine, config)
    assert not opening.is_replay_open
    assert state.replay_buffer.num_trajectories == 0
    assert len(state.retired_set) > 0, "retiring starts at once"
    assert exgrpo_step(state, engine, config).is_replay_open


def test_a_candidate_budget_bounds_what_is_scored_and_keeps_the_lowest_entropy(tmp_path):
    _, _, all_scored = run(tmp_path / "all", small_config(), 15)
    state, _, reports = run(tmp_path / "budget", small_config(candidate_budget=2), 15)
    assert max(selection.entropies.size for report in all_scored for selection in report.selections) > 2
    lowest: dict[int, tuple[float, int]] = {}
    num_bound = 0
    for selection in [selection for report in reports for selection in report.selections]:
        question, scored = (
            selection.question_index,
            list(zip(selection.entropies, selection.trajectory_ids, strict=True)),
        )
        assert len(scored) <= 2
        num_bound += len(scored) == 2 and question in lowest
        assert question not in lowest or lowest[question] in scored
        lowest[question] = min([*scored, *([lowest[question]] if question in lowest else [])])
    assert num_bound > 0
    selections = [selection for report in reports for selection in report.selections]
    scored = {
        number: entropy
        for selection in selections
        for number, entropy in zip(selection.trajectory_ids.tolist(), selection.entropies.tolist(), strict=True)
    }
    rows = np.concatenate([state.replay_buffer.rows_of(index) for index in state.replay_buffer.questions().tolist()])
    kept = zip(state.replay_buffer.experiences(rows), state.replay_buffer.last_entropies(rows).tolist(), strict=True)
    known = {item.trajectory_id: entropy for item, entropy in kept if not np.isnan(entropy)}
    assert known == {number: scored[number] for number in known} != {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"start_pass_rate": 0.2}, [True, False]),
        ({"clipping": Clipping.NEVER, "experience_ratio": 0.0}, [False, False]),
        ({"experience_ratio": 0.0}, [True, True]),
        ({"clipping": Clipping.ALWAYS}, [True, True]),
    ],
)
def test_clip_applies_before_the_start_always_or_never_and_on_policy_runs_keep_no_buffer(tmp_path, changes, expected):
    state, engine, reports = run(tmp_path, small_config(**changes), 2)
    assert [objective.clips_fresh for objective in engine.objectives] == expected
    if changes.get("experience_ratio") == 0.0:
        assert state.replay_buffer.num_trajectories == 0
        assert "entropies" not in engine.calls
        assert reports[-1].metrics["replay/num_replayed"] == 0


def test_stored_log_probs_are_those_of_the_rollout_and_reach_the_loss(tmp_path):
    config = small_config()
    state, engine = new_state(tmp_path, config), ToyEngine(MEDIUM_RATES)
    written = {}
    for _ in range(6):
        engine.mini_batches.clear()
        report = exgrpo_step(state, engine, config)
        replayed = [row for batch in engine.mini_batches for row in batch.rows if row.is_replayed]
        assert len(replayed) == len(report.selections)
        for row in replayed:
            assert any(
                np.array_equal(row.token_ids, ids) and np.array_equal(row.behavior_log_probs, log_probs)
                for ids, log_probs in written.values()
            )
        for group in report.groups:
            written |= {t.trajectory_id: (t.token_ids, t.log_probs) for t in group.trajectories}


def test_events_rebuild_the_buffer_of_every_step_and_retired_questions_are_out_of_it_and_not_drawn(tmp_path):
    config = small_config(batch_size=4, mini_batch_size=4)
    state, engine = new_state(tmp_path, config), ToyEngine(list(np.linspace(0.2, 1.0, NUM_QUESTIONS)), 1)
    rebuilt: dict[int, int] = {}
    for _ in range(25):
        retired = set(state.retired_set.sorted_members().tolist())
        report = exgrpo_step(state, engine, config)
        assert report.notices or not retired & {group.question.index for group in report.groups}
        for event in report.buffer_events:
            if event.kind in (BufferEventKind.MOVED, BufferEventKind.RETIRED):
                assert rebuilt.get(event.question_index) == event.bucket_from
                if event.bucket_to is None:
                    rebuilt.pop(event.question_index, None)
                else:
                    rebuilt[event.question_index] = event.bucket_to
        actual = {i: state.replay_buffer.bucket_of(i) for i in range(NUM_QUESTIONS)}
        assert rebuilt == {i: bucket for i, bucket in actual.items() if bucket is not None}
        assert not any(i in state.retired_set for i in rebuilt)
    assert len(state.retired_set) > 5


@pytest.mark.parametrize("rule", [RetiredRule.PERMANENT, RetiredRule.REDRAW])
def test_when_all_is_retired_fresh_draws_come_from_everything_and_only_redrawing_runs_say_nothing(tmp_path, rule):
    _, _, reports = run(tmp_path, small_config(retired=rule), 8, rates=[1.0] * NUM_QUESTIONS)
    seen = [group.question.index for report in reports for group in report.groups]
    assert len(seen) > len(set(seen)) == NUM_QUESTIONS == reports[-1].metrics["buffer/num_retired"]
    assert bool(reports[-1].notices) is (rule is RetiredRule.PERMANENT)


def test_an_on_policy_run_skips_retired_questions_only_where_its_rule_is_always(tmp_path):
    for rule, skips in ((RetiredRule.PERMANENT, False), (RetiredRule.ALWAYS, True)):
        config = small_config(experience_ratio=0.0, retired=rule)
        _, _, reports = run(tmp_path / rule, config, 12, rates=[1.0] * 16 + [0.0] * (NUM_QUESTIONS - 16))
        retired: set[int] = set()
        redrawn = False
        for report in reports:
            redrawn |= bool(retired & {group.question.index for group in report.groups})
            retired |= {e.question_index for e in report.buffer_events if e.kind is BufferEventKind.RETIRED}
        assert redrawn != skips


def test_review_puts_a_share_of_the_retired_into_fresh_slots_every_interval_and_no_more_than_there_are(tmp_path):
    config = small_config(review_interval=5, review_fraction=0.1)
    state, engine = new_state(tmp_path, config), ToyEngine([1.0] * 25 + [0.0] * 15)
    for step in range(1, 11):
        retired = set(state.retired_set.sorted_members().tolist())
        report = exgrpo_step(state, engine, config)
        reviewed = {e.question_index for e in report.buffer_events if e.kind is BufferEventKind.REVIEWED}
        assert len(reviewed) == (round(0.1 * len(retired)) if step % 5 == 0 else 0)
        assert reviewed <= retired
        assert reviewed <= {group.question.index for group in report.groups}
    config = small_config(review_interval=1, review_fraction=1.0)
    _, _, reports = run(tmp_path / "all", config, 8, rates=[1.0] * NUM_QUESTIONS)
    assert [len(report.groups) for report in reports] == [8] * 8
    assert [event.kind for event in reports[-1].buffer_events].count(BufferEventKind.REVIEWED) == 8


def test_continuous_rewards_store_above_mean_trajectories_and_never_retire(tmp_path):
    config = small_config(reward_kind=RewardKind.CONTINUOUS)
    state = new_state(tmp_path, config)
    engine = ToyEngine(MEDIUM_RATES, rewards=lambda index, rng: 2.0 + rng.normal() * (1 + index))
    first = exgrpo_step(state, engine, config)
    stored = {e.trajectory_id for e in first.buffer_events if e.kind is BufferEventKind.INSERTED}
    above = {t.trajectory_id for group in first.groups for t in group.trajectories if t.reward > group.rewards.mean()}
    assert stored == above
    later = [exgrpo_step(state, engine, config) for _ in range(10)]
    assert len(state.retired_set) == 0
    assert later[-1].metrics["replay/num_replayed"] > 0
    assert "reward/pass_at_1" not in later[-1].metrics


def test_questions_whose_rollouts_failed_are_left_out_counted_and_named(tmp_path):
    config = small_config()

    class Failing(ToyEngine):
        """Fails the first fresh question and the last drawn one of every step after the first."""

        def rollout(self, requests):
            groups = super().rollout(requests)
            if self.calls.count("rollout") > 1:
                groups[0].trajectories.clear()
                groups[-1].trajectories.clear()
            return groups

    state, engine, reports = run(tmp_path, config, 3, engine=Failing(MEDIUM_RATES))
    assert [len(report.groups) for report in reports] == [8, 6, 6]
    assert [report.metrics["rollouts/failed_groups"] for report in reports] == [0.0, 2.0, 2.0]
    assert reports[1].notices == ["2 of 8 questions are left out: a rollout of each failed twice."]
    assert [sum(group.has_replay for group in report.groups) for report in reports] == [0, 3, 3]
    assert sum(mini_batch.num_trajectories for mini_batch in engine.mini_batches[2:4]) == 6 * 4
    for report in reports[1:]:
        drawn = {group.question.index for group in report.groups if group.has_replay}
        assert {selection.question_index for selection in report.selections} == drawn
    assert state.step == 3


class Miscounting(ToyEngine):
    def rollout(self, requests):
        groups = super().rollout(requests)
        groups[0].trajectories.pop()
        return groups


class Misaligned(ToyEngine):
    def entropies(self, questions, candidates):
        scores = super().entropies(questions, candidates)
        scores.entropies[0] = np.append(scores.entropies[0], 0.0)
        return scores


@pytest.mark.parametrize(("engine", "call"), [(Miscounting, "rollout"), (Misaligned, "entropies")])
def test_engine_that_miscounts_rollouts_or_misaligns_scores_is_named_by_its_call(tmp_path, engine, call):
    with pytest.raises(ValueError, match=rf"^engine\.{call}"):
        run(tmp_path, small_config(), 3, engine=engine(MEDIUM_RATES))
