"""Every replay method in the same step: what it does to groups, and that a saved state goes on bit for bit."""

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.methods.loading import find_mistakes
from exgrpo_core.policy_optimization.mixed_batch import assign_advantages, group_rows
from exgrpo_core.step.collection import is_solved
from exgrpo_core.step.rollouts import StepRollouts
from exgrpo_core.step_report import METRICS, BufferEventKind
from exgrpo_core.types import Experience, GroupPlan, Prefix, RolloutGroup
from tests.exgrpo_core.builders import question, small_config, trajectory
from tests.exgrpo_core.strategies.replay_methods import METHODS, WITHOUT_TRAJECTORIES
from tests.exgrpo_core.toy_engine import ToyEngine

pytestmark = pytest.mark.slow

NUM_QUESTIONS = 24
RATES = list(np.linspace(0.0, 0.9, NUM_QUESTIONS))
K, B = 4, 8


def start(folder, name):
    config = small_config(**METHODS[name])
    assert list(find_mistakes(config)) == []
    state = ExGRPOState.create(folder / "buffer", [question(i) for i in range(NUM_QUESTIONS)], config)
    return config, state, ToyEngine(RATES)


def run(folder, name, num_steps=14):
    config, state, engine = start(folder, name)
    return config, state, engine, [exgrpo_step(state, engine, config) for _ in range(num_steps)]


def digest(report, engine):
    rows = [
        (row.token_ids.tolist(), row.behavior_log_probs.tolist(), row.token_advantages.tolist(), row.is_replayed)
        for mini_batch in engine.mini_batches
        for row in mini_batch.rows
    ]
    engine.mini_batches.clear()
    timeless = {key: value for key, value in report.metrics.items() if not key.startswith(("seconds/", "buffer/"))}
    content = repr((rows, report.buffer_events, report.buckets, sorted(timeless.items())))
    return hashlib.sha256(content.encode()).hexdigest()


@pytest.mark.parametrize("name", METHODS)
def test_a_saved_and_restored_state_goes_on_bit_for_bit_with_declared_metrics_and_counted_uses(tmp_path, name):
    config, state, engine = start(tmp_path, name)
    reports = [exgrpo_step(state, engine, config) for _ in range(6)]
    state.save(tmp_path / "saved")
    engine.mini_batches.clear()
    draws = engine.rng.bit_generator.state
    uninterrupted = []
    for _ in range(6):
        reports.append(exgrpo_step(state, engine, config))
        uninterrupted.append(digest(reports[-1], engine))
    restored = ExGRPOState.restore(tmp_path / "buffer", tmp_path / "saved", state.questions, config)
    engine.rng.bit_generator.state = draws
    assert [digest(exgrpo_step(restored, engine, config), engine) for _ in range(6)] == uninterrupted

    assert set().union(*(report.metrics for report in reports)) <= METRICS.keys()
    assert all(np.isfinite(list(report.metrics.values())).all() for report in reports)
    replayed = [replay for report in reports for group in report.groups for replay in group.replays]
    if not config.limits_buffer:  # what left has no counts
        assert state.replay_buffer._index.num_replays.sum() == len(replayed)
    assert bool(replayed) is (name not in WITHOUT_TRAJECTORIES)
    events = [event for report in reports for event in report.buffer_events]
    assert sum(event.kind is BufferEventKind.REPLAYED for event in events) == len(replayed)


def test_repo_replays_beside_k_rollouts_and_both_parts_sum_to_zero(tmp_path):
    _, _, _, reports = run(tmp_path, "repo")
    mixed = [group for report in reports for group in report.groups if group.has_replay]
    assert {len(group.trajectories) for group in mixed} == {K}
    assert {len(group.replays) for group in mixed} == {3}
    for group in mixed:
        assert abs(group.advantages[:K].sum()) < 1e-4
        assert abs(group.advantages[K:].sum()) < 1e-4
    assert all(len(report.groups) == B for report in reports)
    stored: dict[int, list[int]] = {}
    for report in reports:
        for selection in report.selections:
            assert selection.trajectory_ids.tolist() == stored[selection.question_index][-6:]
        for event in report.buffer_events:
            if event.kind is BufferEventKind.INSERTED:
                stored.setdefault(event.question_index, []).append(event.trajectory_id)
    assert all(len(selection.chosen) == 3 for report in reports for selection in report.selections)


def test_trl_replaces_groups_of_equal_rewards_by_stored_groups_that_vary(tmp_path):
    _, _, engine, reports = run(tmp_path, "trl_replay")
    for report in reports:
        rolled_out = [group for group in report.groups if group.trajectories]
        replayed = [group for group in report.groups if not group.trajectories]
        assert len(rolled_out) == B
        assert len(replayed) <= sum(group.has_equal_rewards for group in rolled_out)
        for group in replayed:
            assert len(group.replays) == K
            assert not group.has_equal_rewards
            assert len({replay.experience.rollout_step for replay in group.replays}) == 1
    assert any(len(report.groups) > B for report in reports)
    assert sum(len(mini_batch.rows) for mini_batch in engine.mini_batches) == len(reports) * B * K


@pytest.mark.parametrize("name", ["trinity", "fifo"])
def test_trinity_and_fifo_give_their_share_of_slots_to_stored_groups_without_rollouts(tmp_path, name):
    _, _, engine, reports = run(tmp_path, name)
    alone = [group for report in reports for group in report.groups if not group.trajectories]
    assert {len(group.replays) for group in alone} == {K}
    assert sum(len(mini_batch.rows) for mini_batch in engine.mini_batches) == len(reports) * B * K
    if name == "fifo":
        return
    drawn_in: dict[int, int] = {}
    for report in reports[1:]:
        replayed = [group for group in report.groups if not group.trajectories]
        assert len(report.groups) == B
        assert len(replayed) == B // 2 - report.metrics["replay/shortfall"]
        for group in replayed:
            index, born = group.question.index, group.replays[0].experience.rollout_step
            assert born >= drawn_in.get(index, 0) or report.step - drawn_in[index] >= 2
            drawn_in[index] = report.step


def test_prompt_replay_rolls_questions_out_again_and_counts_their_uses(tmp_path):
    _, state, _, reports = run(tmp_path, "prompt_replay")
    num_drawn = sum(bucket.num_drawn for report in reports for bucket in report.buckets)
    assert num_drawn == state.replay_buffer.history.num_draws.sum() > 0
    assert state.replay_buffer.history.num_draws.max() <= 4
    assert {len(group.trajectories) for report in reports for group in report.groups} == {K}


def test_rlep_compares_old_successes_with_all_k_rollouts(tmp_path):
    _, _, engine, reports = run(tmp_path, "rlep")
    mixed = [group for report in reports for group in report.groups if group.has_replay]
    assert {len(group.trajectories) for group in mixed} == {K}
    assert {len(group.replays) for group in mixed} == {1, 2}
    for group in mixed:
        assert abs(group.advantages.sum()) < 1e-4
        assert group.advantages[-1] >= 0.0
    num_rows = sum(group.num_trajectories for report in reports for group in report.groups)
    assert sum(len(mini_batch.rows) for mini_batch in engine.mini_batches) == num_rows


def test_vcrl_gives_places_of_groups_of_low_variance_to_others_without_a_question_twice(tmp_path):
    _, _, engine, reports = run(tmp_path, "vcrl")
    num_drawn = sum(bucket.num_drawn for report in reports for bucket in report.buckets)
    assert num_drawn == sum(len(report.groups) - B for report in reports) > 0
    for report in reports:
        indices = [group.question.index for group in report.groups]
        assert len(set(indices)) == len(indices)
    assert sum(len(mini_batch.rows) for mini_batch in engine.mini_batches) == len(reports) * B * K


def test_rollout_level_replay_trains_single_rollouts_with_the_advantages_they_had(tmp_path):
    _, _, engine, reports = run(tmp_path, "rollout_level")
    had, replayed_in = {}, {}
    for report in reports:
        for group in report.groups:
            had |= dict(zip((one.trajectory_id for one in group.trajectories), group.advantages, strict=False))
            for replay, advantage in zip(group.replays, group.advantages[len(group.trajectories) :], strict=True):
                assert advantage == had[replay.experience.trajectory_id] != 0.0
                assert report.step - replay.experience.rollout_step <= 3
                replayed_in.setdefault(replay.experience.trajectory_id, []).append(report.step)
    assert replayed_in
    trained = {row.advantage for batch in engine.mini_batches for row in batch.rows if row.is_replayed}
    assert trained == {float(had[number]) for number in replayed_in}


def test_bapo_fills_places_without_a_gradient_with_hard_questions_and_then_stored_groups(tmp_path):
    _, state, engine, reports = run(tmp_path, "bapo")
    assert (state.replay_buffer.bucket_of(0), state.replay_buffer.history.num_draws[0] > 0) == (0, True)
    retried, alone = [], []
    for report in reports:
        rolled_out = [group for group in report.groups if group.trajectories]
        retried += [(report.step, len(rolled_out) - B)]
        stored = [group for group in report.groups if not group.trajectories]
        alone += stored
        num_free = B - sum(not group.has_equal_rewards for group in rolled_out)
        assert len(stored) <= min(num_free, B // 2 - (len(rolled_out) - B))
        assert len({group.question.index for group in report.groups}) == len(report.groups)
        assert sum(bucket.num_drawn for bucket in report.buckets) == len(report.groups) - B
    assert alone
    assert all(1 / 4 <= np.mean(group.rewards) <= 3 / 4 for group in alone)
    assert any(number for _, number in retried)
    assert all(step % 2 == 0 for step, number in retried if number)
    assert sum(len(mini_batch.rows) for mini_batch in engine.mini_batches) == len(reports) * B * K


@pytest.mark.parametrize("name", ["bapo", "retrospective"])
def test_probabilities_of_buckets_are_those_of_what_was_drawn_in_all_draws_of_a_step(tmp_path, name):
    _, _, _, reports = run(tmp_path, name, num_steps=24)
    assert any(report.buckets and report.buckets[0].num_drawn for report in reports)
    for report in reports:
        num_drawn = sum(bucket.num_drawn for bucket in report.buckets)
        assert all(bucket.probability > 0.0 for bucket in report.buckets if bucket.num_drawn)
        if num_drawn:
            assert sum(bucket.probability for bucket in report.buckets) == pytest.approx(1.0)


def test_repair_reviews_mastered_questions_without_trajectories(tmp_path):
    config, state, engine = start(tmp_path, "repair_window")
    reports, mastered, groups_since, waits = [], set(), Counter(), []
    for _ in range(40):
        draws = state.replay_buffer.history.num_draws.copy()
        reports.append(exgrpo_step(state, engine, config))
        drawn = np.flatnonzero(state.replay_buffer.history.num_draws > draws).tolist()
        assert mastered.issuperset(drawn)
        waits += [groups_since[index] for index in drawn]
        for group in reports[-1].groups:
            index, is_mastered = group.question.index, bool(np.all(group.rewards == 1.0))
            groups_since[index] = 0 if is_mastered else groups_since[index] + 1
            mastered |= {index} if is_mastered else set()
    num_drawn = sum(bucket.num_drawn for report in reports for bucket in report.buckets)
    assert num_drawn == state.replay_buffer.history.num_draws.sum() > 0
    assert max(waits) > 8
    assert {len(group.trajectories) for report in reports for group in report.groups} == {K}


@pytest.mark.parametrize(
    ("name", "capacity", "age"), [("limited", 12, 5), ("limited", 100, 2), ("limited groups", 40, None)]
)
def test_trajectories_leave_by_number_and_age_and_each_is_an_event(tmp_path, name, capacity, age):
    config, state, engine = start(tmp_path, name)
    config = replace(config, buffer_capacity=capacity)
    config = config if age is None else replace(config, buffer_age=age)
    buffer, held, oldest = state.replay_buffer, {}, 0
    for step in range(1, 25):
        before = {i: buffer.bucket_of(i) for i in range(NUM_QUESTIONS)}
        report = exgrpo_step(state, engine, config)
        for event in report.buffer_events:
            if event.kind is BufferEventKind.INSERTED:
                held[event.trajectory_id] = (event.question_index, step)
            elif event.kind is BufferEventKind.RETIRED:
                held = {number: item for number, item in held.items() if item[0] != event.question_index}
            elif event.kind is BufferEventKind.EVICTED:
                question, _ = held.pop(event.trajectory_id)
                assert event.question_index == question
                is_last = all(item[0] != question for item in held.values())
                assert event.bucket_to == (None if is_last else event.bucket_from)
                assert event.bucket_from is not None
                assert before[question] is not None or question in {g.question.index for g in report.groups}
        rows = [buffer.experiences(buffer.rows_of(i)) for i in range(NUM_QUESTIONS)]
        assert {item.trajectory_id for items in rows for item in items} == held.keys()
        assert [buffer.bucket_of(i) is not None for i in range(NUM_QUESTIONS)] == [bool(items) for items in rows]
        assert len(held) == buffer.num_trajectories <= capacity
        oldest = max(oldest, *(step + 1 - born for _, born in held.values()))
        if name == "limited groups":
            assert all(len([n for n, where in held.items() if where == one]) == K for one in held.values())
        if step % 4 == 0:
            state.save(tmp_path / "saved")
            assert buffer._index.num_rows < capacity + 5 * B * K
    assert buffer._num_forgotten > 0
    assert age is None or oldest == age


def test_rollouts_from_a_prefix_train_what_follows_it_and_leave_their_question_where_it_is(tmp_path):
    config, state, engine = start(tmp_path, "retrospective")
    num_helped = 0
    for _ in range(14):
        before = {i: state.replay_buffer.bucket_of(i) for i in range(NUM_QUESTIONS)}
        history = state.replay_buffer.history.reward_spreads.copy()
        engine.mini_batches.clear()
        report = exgrpo_step(state, engine, config)
        rows = {row.behavior_log_probs.tobytes(): row for batch in engine.mini_batches for row in batch.rows}
        helped = [group for group in report.groups if group.is_helped]
        for group in helped:
            (stored,) = state.replay_buffer.experiences(np.array([group.plan.prefix.row]))
            size, index = stored.token_ids.size // 2, group.question.index
            for item in group.trajectories:
                assert (item.num_prefix_tokens, item.prefix_of) == (size, stored.trajectory_id)
                row = rows[item.log_probs[size:].tobytes()]
                assert row.token_ids.tolist() == item.token_ids[size:].tolist()
                assert row.prompt_ids.tolist() == [*group.question.prompt_ids, *stored.token_ids[:size]]
            assert state.replay_buffer.bucket_of(index) == before[index]
            assert np.array_equal(state.replay_buffer.history.reward_spreads[index], history[index])
        num_helped += len(helped)
        num_generated = sum(
            item.token_ids.size - item.num_prefix_tokens for group in report.groups for item in group.trajectories
        )
        assert report.metrics["tokens/generated"] == num_generated
    assert num_helped > 10


def test_a_prefix_that_is_trained_on_is_part_of_its_rows_and_an_engine_that_leaves_it_out_is_refused(tmp_path):
    config, state, engine = start(tmp_path, "retrospective")
    state.replay_buffer.insert([trajectory(3, [4, 5, 6], 1.0)])
    step = StepRollouts(state, config, 1)
    step.first_round = [GroupPlan(3, 2, prefix=Prefix(0, 2, is_trained=True))]
    step.roll_out(engine)
    (group,) = step.groups
    assign_advantages([group], config)
    assert all(row.token_ids[:2].tolist() == [4, 5] for row in group_rows(group, config))
    assert not is_solved(group)
    engine.rollout = lambda requests: [RolloutGroup(requests[0].question, [trajectory(3, [9, 9, 9], 1.0)] * 2)]
    step.groups.clear()
    with pytest.raises(ValueError, match=r"question 3 has rollouts without the prefix"):
        step.roll_out(engine)


def test_a_question_that_gets_rollouts_twice_in_a_step_is_refused_by_name(tmp_path):
    config, state, engine = start(tmp_path, "retrospective")
    step = StepRollouts(state, config, 1)
    step.first_round = [GroupPlan(3, 2), GroupPlan(5, 2), GroupPlan(3, 2)]
    with pytest.raises(ValueError, match=r"rollouts of question 3 twice in a step"):
        step.roll_out(engine)
    step = StepRollouts(state, config, 1)
    step.first_round, step._rounds = [GroupPlan(4, 2)], iter([[GroupPlan(4, 2)]])
    with pytest.raises(ValueError, match=r"rollouts of question 4 twice in a step"):
        step.roll_out(engine)


def test_nexgrpo_replays_failures_with_k_rollouts(tmp_path):
    _, _, _, reports = run(tmp_path, "nexgrpo")
    mixed = [group for report in reports for group in report.groups if group.has_replay]
    assert {len(group.trajectories) for group in mixed} == {K}
    assert {replay.experience.reward for group in mixed for replay in group.replays} == {0.0}
    assert {len(group.replays) for group in mixed} <= {1, 2}
    assert all(group.advantages[-1] <= 0.0 for group in mixed)


@pytest.mark.parametrize(("name", "most"), [("dyjr", 1), ("dyjr_three", 3)])
def test_dyjr_trains_recent_successes_for_their_divergence_only(tmp_path, name, most):
    _, _, engine, reports = run(tmp_path, name, num_steps=24)
    alone = [(report.step, group) for report in reports for group in report.groups if not group.trajectories]
    assert {step - replay.experience.rollout_step for step, group in alone for replay in group.replays} <= {1, 2, 3, 4}
    rows = [row for mini_batch in engine.mini_batches for row in mini_batch.rows if row.is_replayed]
    assert {len(group.replays) for _, group in alone} == {*range(1, most + 1)}
    assert len(rows) == sum(len(group.replays) for _, group in alone)
    assert {row.advantage for row in rows} == {float(np.float32(0.1))}


def test_dapo_fills_up_with_groups_of_different_rewards(tmp_path):
    _, _, engine, reports = run(tmp_path, "dapo", num_steps=4)
    assert engine.calls.count("rollout") > len(reports)
    for report in reports:
        varied = [group for group in report.groups if not group.has_equal_rewards]
        assert len(report.groups) > B
        assert len(varied) == B
    trained = [mini_batch.num_questions_left for mini_batch in engine.mini_batches]
    assert trained == [B // 2] * 2 * len(reports)


def test_dapo_stops_where_the_data_set_ends_and_fills_the_batch_with_what_is_left(tmp_path):
    config = small_config(**METHODS["dapo"])
    state = ExGRPOState.create(tmp_path, [question(i) for i in range(10)], config)
    engine = ToyEngine([0.0] * 9 + [0.5], seed=2)
    report = exgrpo_step(state, engine, config)
    assert len(report.groups) == 10
    assert sum(len(mini_batch.rows) for mini_batch in engine.mini_batches) == B * K


def test_prioritized_replay_weighs_replayed_tokens_by_their_draw(tmp_path):
    _, _, engine, reports = run(tmp_path, "prioritized_proportional")
    weights = [group.replays[0].weight for report in reports for group in report.groups if group.replays]
    assert 0.0 < min(weights) < max(weights) <= 1.0
    rows = [row for mini_batch in engine.mini_batches for row in mini_batch.rows if row.is_replayed]
    found = [1.0 if row.weights is None else float(row.weights[0]) for row in rows]
    assert sorted(found) == pytest.approx(sorted(weights))


def test_several_replays_take_the_places_of_as_many_rollouts(tmp_path):
    _, _, _, reports = run(tmp_path, "two at a time, masked")
    sizes = {(len(group.trajectories), len(group.replays)) for report in reports for group in report.groups}
    assert sizes == {(4, 0), (3, 1), (2, 2)}


@pytest.mark.parametrize("name", ["prompt_replay", "vcrl"])
def test_questions_that_are_only_rolled_out_again_count_as_drawn(tmp_path, name):
    _, _, _, reports = run(tmp_path, name)
    num_drawn = [sum(bucket.num_drawn for bucket in report.buckets) for report in reports]
    assert any(num_drawn)
    assert [report.metrics["replay/shortfall"] for report in reports] == [B // 2 - number for number in num_drawn]
    for report, number in zip(reports, num_drawn, strict=True):
        # Both methods put drawn questions last.
        for part, groups in (("fresh", report.groups[: -number or None]), ("replayed", report.groups[-number or B :])):
            rewards = [one.reward for group in groups for one in group.trajectories]
            expected = np.mean(rewards) if rewards else None
            assert report.metrics.get(f"reward/pass_at_1_{part}") == expected


SIZES_WITH_A_FILE = {
    "exgrpo": {(4, 0), (3, 1)}, "prompt_replay": {(4, 0), (3, 1)}, "vcrl": {(4, 0), (3, 1)},
    "rlep": {(4, 0), (3, 1), (4, 1), (4, 2)}, "repo": {(4, 0), (3, 1), (4, 3)},
    "trinity": {(4, 0), (3, 1), (0, 4), (0, 3)},
}  # fmt: skip
"""Rollouts and replays of the groups where half of the questions have a trajectory from a file."""


@pytest.mark.parametrize("name", SIZES_WITH_A_FILE)
def test_a_trajectory_from_a_file_takes_the_place_of_a_rollout_and_is_not_lost(tmp_path, name):
    config = small_config(uses_external_experience=True, **METHODS[name])
    ids = np.array([7, 8], dtype=np.int32)
    external = {
        i: Experience(-1, -1 - i, i, 0, 1.0, ids, np.zeros(2, dtype=np.float32)) for i in range(0, NUM_QUESTIONS, 2)
    }
    state = ExGRPOState.create(tmp_path, [question(i) for i in range(NUM_QUESTIONS)], config, external)
    engine = ToyEngine(RATES)
    groups = [group for _ in range(14) for group in exgrpo_step(state, engine, config).groups]
    assert {(len(group.trajectories), len(group.replays)) for group in groups} == SIZES_WITH_A_FILE[name]
    for group in groups:
        is_short = (len(group.trajectories), len(group.replays)) == (3, 1)
        assert is_short or not any(replay.is_external for replay in group.replays)
    rows = [row for batch in engine.mini_batches for row in batch.rows if row.token_ids.tolist() == [7, 8]]
    assert any(row.is_replayed and not row.behavior_log_probs.any() for row in rows)
