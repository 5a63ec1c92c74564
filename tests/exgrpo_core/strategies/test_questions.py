"""Question samplers with numbers computed by hand."""

import dataclasses
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from exgrpo_core.errors import NotRecordedError
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.methods.columns import QuestionColumns
from exgrpo_core.methods.loading import QUESTIONS, build_part
from tests.exgrpo_core.builders import group
from tests.exgrpo_core.experience_management.buffers import NUM_QUESTIONS, empty_buffer, success
from tests.exgrpo_core.experience_management.buffers import K as BUFFER_K

K = 4
RNG = np.random.default_rng(0)


def columns_of(step=10, **columns):
    """Return columns of three questions, 20 to 22, of buckets 1 to 3."""
    questions = QuestionColumns(SimpleNamespace(rollouts_per_question=K), step)
    given = {"indices": [20, 21, 22], "num_correct": [1, 2, 3]} | columns
    vars(questions).update({name: np.array(values) for name, values in given.items()})
    return questions


def sampler_of(name, normalize_by_std=False, **settings):
    return build_part(
        QUESTIONS,
        SimpleNamespace(
            question_selection=name,
            strategy_settings=settings,
            rollouts_per_question=K,
            normalize_by_std=normalize_by_std,
        ),
    )


def test_released_buckets_have_a_spread_of_one_success(tmp_path):
    buffer = empty_buffer(tmp_path)
    for question in range(40):
        buffer.insert([success(question, [1], rollout_step=0)])
        buffer.set_bucket(question, 4 if question < 30 else 3 if question < 38 else 1)
    sampler = build_part(
        QUESTIONS,
        SimpleNamespace(question_selection="exgrpo_released", strategy_settings={}, rollouts_per_question=BUFFER_K),
    )
    draw = sampler.draw(QuestionColumns(buffer, 1), 39, RNG)
    # N(k; 4, 1) of k = 1, 3, 4 in proportion: e^-4.5, e^-.5, 1.
    total = math.exp(-4.5) + math.exp(-0.5) + 1.0
    expected = [math.exp(-4.5) / total, 0.0, math.exp(-0.5) / total, 1.0 / total, 0.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(draw.bucket_probabilities, expected)
    assert len(set(draw.question_indices.tolist())) == 39
    assert draw.overflows.sum() > 0


def test_trl_scores_are_the_sum_of_advantages_times_the_deviation():
    # Rewards 1000, 1100 and 0000: mean |A| .375, .5, 0; standard deviations (of K-1) .5, sqrt(1/3), 0.
    columns = {"reward_deviations": [0.375, 0.5, 0.0], "reward_stds": [0.5, math.sqrt(1 / 3), 0.0]}
    questions = columns_of(newest_rollout_steps=[3, 2, 1], **columns)
    draw = sampler_of("trl_replay").draw(questions, 5, RNG)
    scores = [4 * 0.375 * 0.5, 4 * 0.5 * math.sqrt(1 / 3)]
    np.testing.assert_allclose(draw.bucket_probabilities, [scores[0] / sum(scores), scores[1] / sum(scores), 0.0, 0.0])
    assert sorted(draw.question_indices.tolist()) == [20, 21]
    # Divided by the deviation, |A| sums to 3 and 2 sqrt(3): scores 1.5 and 2.
    draw = sampler_of("trl_replay", normalize_by_std=True).draw(questions, 5, RNG)
    np.testing.assert_allclose(draw.bucket_probabilities[:2], [1.5 / 3.5, 2.0 / 3.5], rtol=1e-5)
    # Only the highest score is kept.
    assert sampler_of("trl_replay", capacity=1.0).draw(questions, 5, RNG).question_indices.tolist() == [21]


def test_trinity_takes_the_highest_of_version_minus_decay_times_uses_the_oldest_of_equals():
    columns = {"newest_rollout_steps": [5, 9, 7], "newest_num_replays": [0, 3, 1], "last_draw_steps": [-1, 9, 8]}
    draw = sampler_of("trinity", decay=2.0).draw(columns_of(**columns), 2, RNG)
    assert draw.question_indices.tolist() == [20, 22]  # priorities 5, 3, 5
    draw = sampler_of("trinity", decay=0.5).draw(columns_of(**columns), 3, RNG)
    assert draw.question_indices.tolist() == [21, 22, 20]  # priorities 5, 7.5, 6.5
    # At step 10 the group of question 22, of step 7, was used in step 8: it waits until step 11. 21 has a new one.
    draw = sampler_of("trinity", decay=2.0, cooldown_steps=3.0).draw(columns_of(**columns), 3, RNG)
    assert draw.question_indices.tolist() == [20, 21]


def test_proportional_priorities_and_weights():
    settings = {"priority_alpha": 1.0, "priority_beta": 0.5, "priority_epsilon": 0.125}
    draw = sampler_of("prioritized_proportional", **settings).draw(
        columns_of(reward_deviations=[0.375, 0.5, 0.0]), 3, RNG
    )
    # p = .5, .625, .125: P = .4, .5, .1; (3 P)^-.5 over its largest, .3^-.5.
    np.testing.assert_allclose(draw.bucket_probabilities, [0.4, 0.5, 0.1, 0.0])
    weights = dict(zip(draw.question_indices.tolist(), draw.weights.tolist(), strict=True))
    assert weights == pytest.approx({20: math.sqrt(0.3 / 1.2), 21: math.sqrt(0.3 / 1.5), 22: 1.0})
    draw = sampler_of("prioritized_proportional", **settings | {"priority_alpha": 0.0}).draw(
        columns_of(reward_deviations=[0.375, 0.5, 0.0]), 3, RNG
    )
    assert draw.weights.tolist() == [1.0, 1.0, 1.0]


def test_fifo_draws_evenly_from_the_newest_groups():
    questions = columns_of(newest_rollout_steps=[5, 9, 7])
    questions._buffer.buckets_of = lambda pool: np.array(pool) - 19
    draw = sampler_of("fifo", capacity=2.0).draw(questions, 5, RNG)
    assert sorted(draw.question_indices.tolist()) == [21, 22]
    np.testing.assert_allclose(draw.bucket_probabilities, [0.0, 0.5, 0.5, 0.0])


def test_fresh_priorities_decay_with_age_and_have_no_weights():
    columns = {"reward_deviations": [0.375, 0.5, 0.0], "newest_rollout_steps": [10, 8, 10]}
    settings = {"priority_alpha": 1.0, "priority_epsilon": 0.125, "age_scale": 2.0 / math.log(2.0)}
    draw = sampler_of("fresh_per", **settings).draw(columns_of(step=10, **columns), 3, RNG)
    # p = .5, .625, .125 of ages 0, 2, 0: two steps halve, so .5, .3125, .125 over .9375.
    np.testing.assert_allclose(draw.bucket_probabilities, [8 / 15, 1 / 3, 2 / 15, 0.0])
    assert draw.weights.tolist() == [1.0, 1.0, 1.0]


def test_priorities_that_age_makes_0_leave_the_weights_of_the_others():
    columns = {"reward_deviations": [0.5, 0.5, 0.5], "newest_rollout_steps": [10, 10, 1]}
    settings = {"priority_alpha": 1.0, "priority_beta": 1.0, "age_scale": 0.01}
    draw = sampler_of("fresh_per", **settings).draw(columns_of(step=10, **columns), 3, RNG)
    # exp(-900) is 0: of three questions two have P = 1/2.
    assert sorted(draw.question_indices.tolist()) == [20, 21]
    assert draw.weights.tolist() == [1.0, 1.0]


def test_prompts_nearest_to_one_half_come_again_after_a_cooldown_and_not_too_often():
    columns = {"newest_rollout_steps": [5, 5, 5], "last_draw_steps": [-1, -1, -1], "num_draws": [0, 0, 0]}
    method = sampler_of("prompt_replay", cooldown_steps=3.0, max_uses=2.0)
    # Rates 1/4, 2/4, 3/4.
    assert method.draw(columns_of(**columns), 2, RNG).question_indices.tolist() == [21, 20]
    columns |= {"last_draw_steps": [-1, 8, -1]}
    assert method.draw(columns_of(**columns), 3, RNG).question_indices.tolist() == [20, 22]
    columns |= {"num_draws": [2, 1, 1]}
    assert method.draw(columns_of(step=11, **columns), 3, RNG).question_indices.tolist() == [21, 22]


def test_vcrl_draws_in_proportion_to_variance_over_the_largest_possible_one():
    # K = 4: k = 1, 2, 3 have variances 1/4, 1/3, 1/4 of K - 1, of at most 1/3.
    questions = columns_of(reward_stds=[0.5, 3.0**-0.5, 0.5])
    draw = sampler_of("vcrl", variance_threshold=0.7).draw(questions, 5, RNG)
    np.testing.assert_allclose(draw.bucket_probabilities, [3 / 10, 4 / 10, 3 / 10, 0.0])
    draw = sampler_of("vcrl", variance_threshold=0.7).draw(questions, 5, RNG, taken=[22])
    np.testing.assert_allclose(draw.bucket_probabilities, [3 / 7, 4 / 7, 0.0, 0.0])
    assert sampler_of("vcrl", variance_threshold=0.8).draw(questions, 5, RNG).question_indices.tolist() == [21]
    odd = dataclasses.replace(sampler_of("vcrl"), rollouts_per_question=5)
    assert odd.shares(np.array([0.3])) == pytest.approx([1.0])


def test_rollout_level_replay_draws_young_groups_in_proportion_to_the_size_of_their_advantages():
    questions = columns_of(newest_rollout_steps=[9, 2, 8], reward_deviations=[0.375, 0.5, 0.125])
    draw = sampler_of("rollout_level", max_age=2.0).draw(questions, 5, RNG)
    np.testing.assert_allclose(draw.bucket_probabilities, [3 / 4, 0.0, 1 / 4, 0.0])


def test_rollout_level_replay_takes_the_largest_advantages_of_the_newest_group_and_those_replayed_least():
    stored = SimpleNamespace(
        rows=np.arange(10, 16),
        rollout_steps=np.array([3, 3, 7, 7, 7, 7]),
        rewards=np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]),
        num_replays=np.array([0, 0, 2, 1, 0, 1]),
    )
    for num_replays, rows, advantages in ((1, [13], [-0.75]), (2, [13, 14], [-0.75, 0.25])):
        step = SimpleNamespace(stored={5: stored}.get, replays_per_group=num_replays)
        (plan,) = sampler_of("rollout_level").plan_replays(step, {5: 1.0})
        assert (plan.num_rollouts, plan.candidates.tolist(), plan.advantages.tolist()) == (0, rows, advantages)


def test_ambiguous_questions_are_those_whose_past_rates_varied():
    # Of K = 4: rates 0 and 1, always 1/2, and one group only: deviations 1/2, 0, 0, and .125 more.
    questions = columns_of(past_correct=[[-1, 0, 4], [2, 2, 2], [-1, -1, 4]])
    draw = sampler_of("a2r", priority_epsilon=0.125).draw(questions, 3, RNG)
    np.testing.assert_allclose(draw.bucket_probabilities, [5 / 7, 1 / 7, 1 / 7, 0.0])


def test_mastered_questions_come_again_forgotten_ones_first_then_those_that_wait_longest():
    columns = {"newest_rollout_steps": [4, 6, 5, 9], "last_draw_steps": [-1, -1, -1, -1]}
    past = {"past_correct": [[4], [1], [4], [4]], "most_correct": [4, 4, 4, 4]}
    questions = columns_of(indices=[20, 21, 22, 23], num_correct=[4, 1, 4, 4], **past, **columns)
    method = sampler_of("repair_window", review_delay=3.0)
    assert method.draw(questions, 4, RNG).question_indices.tolist() == [21, 20, 22]
    assert method.draw(questions, 1, RNG).question_indices.tolist() == [21]
    past = {"past_correct": [[3]] * 3, "most_correct": [3] * 3}
    never = columns_of(newest_rollout_steps=[1] * 3, last_draw_steps=[-1] * 3, **past)
    assert not method.draw(never, 4, RNG).question_indices.size


def test_bapo_draws_hard_questions_in_every_second_step_and_stored_groups_of_a_good_rate():
    def draw(step, **arguments):
        questions = columns_of(step, indices=[20, 21, 22, 23], num_correct=[0, 1, 2, 3])
        questions._buffer.buckets_of = lambda pool: np.array(pool) - 20
        settings = {"hard_rate": 0.25, "least_rate": 0.25, "most_rate": 0.5}
        return sorted(sampler_of("bapo", **settings).draw(questions, 4, RNG, **arguments).question_indices.tolist())

    assert draw(10, is_hard=True) == [20, 21]
    assert draw(11, is_hard=True) == []
    assert draw(10) == draw(11) == [21, 22]
    assert draw(10, step_groups=[group(21, [0.0])]) == [22]


def test_a_question_stays_mastered_however_many_groups_fail_it_later_and_over_a_snapshot(tmp_path):
    method, buffer = sampler_of("repair_window"), empty_buffer(tmp_path)
    buffer.insert([success(3, [1], rollout_step=0), success(7, [1], rollout_step=0)])
    buffer.history.keep_past_groups(method.num_past_groups)
    for bucket in (K, *[1] * 12):
        buffer.history.record_correct([3, 7], [bucket, K - 1])
    buffer.snapshot(tmp_path / "saved")
    for one in (buffer, ReplayBuffer.restore(tmp_path, tmp_path / "saved")):
        one.history.keep_past_groups(method.num_past_groups)
        assert method.draw(QuestionColumns(one, 99, np.array([3, 7])), 4, RNG).question_indices.tolist() == [3]


def test_past_correct_keeps_the_newest_and_raises_where_the_method_asked_for_none(tmp_path):
    buffer = empty_buffer(tmp_path)
    buffer.insert([success(3, [1]), success(7, [1])])
    with pytest.raises(NotRecordedError, match="past_correct"):
        _ = QuestionColumns(buffer, 1, np.array([3])).past_correct
    buffer.history.keep_past_groups(3)
    for buckets in ([1, 8], [2, 0]):
        buffer.history.record_correct([3, 7], buckets)
    assert QuestionColumns(buffer, 1, np.array([3, 7])).past_correct.tolist() == [[-1, 1, 2], [-1, 8, 0]]
    for bucket in (5, 6):
        buffer.history.record_correct([3], [bucket])
    buffer.snapshot(tmp_path / "saved")
    restored = ReplayBuffer.restore(tmp_path, tmp_path / "saved")
    assert restored.history.past_correct[[3, 7]].tolist() == [[2, 5, 6], [-1, 8, 0]]
    for num_groups, expected in ((2, [5, 6]), (4, [-1, -1, 5, 6])):
        restored.history.keep_past_groups(num_groups)
        assert restored.history.past_correct[3].tolist() == expected
    assert restored.num_memory_bytes == buffer.num_memory_bytes + 2 * NUM_QUESTIONS
    assert QuestionColumns(restored, 1, np.array([3, 7])).most_correct.tolist() == [6, 8]
    restored.history.most_correct = np.empty(0, dtype=np.int16)  # as in a snapshot without the column
    restored.history.keep_past_groups(1)
    assert restored.history.most_correct[[3, 7]].tolist() == [6, 8]
    restored.history.keep_past_groups(0)
    with pytest.raises(NotRecordedError, match="most_correct"):
        _ = QuestionColumns(restored, 1, np.array([3])).most_correct


def test_priorities_by_rank():
    questions = columns_of(reward_deviations=[0.375, 0.5, 0.0])
    draw = sampler_of("prioritized_rank", priority_alpha=1.0).draw(questions, 3, RNG)
    # Ranks 2, 1, 3: 1/2, 1, 1/3 over 11/6.
    np.testing.assert_allclose(draw.bucket_probabilities, [3 / 11, 6 / 11, 2 / 11, 0.0])
    # (3 P)^-.5 over its largest.
    weights = dict(zip(draw.question_indices.tolist(), draw.weights.tolist(), strict=True))
    assert weights == pytest.approx({20: math.sqrt(2 / 3), 21: math.sqrt(1 / 3), 22: 1.0})


def test_repo_takes_every_question_of_the_batch_with_enough_stored_and_rlep_those_with_any(tmp_path):
    buffer = empty_buffer(tmp_path)
    for question, num_stored in ((1, 2), (2, 3), (5, 4)):
        buffer.insert([success(question, [i], rollout_step=i) for i in range(num_stored)])
    questions = QuestionColumns(buffer, 9, among=np.array([5, 9, 1, 2]))
    assert questions.indices.tolist() == [1, 2, 5]
    assert questions.num_stored.tolist() == [2, 3, 4]
    sampler = sampler_of("repo", min_stored=3.0, max_stored=8.0)
    assert sorted(sampler.draw(questions, 4, RNG).question_indices.tolist()) == [2, 5]
    assert sampler.draw(questions, 1, RNG).question_indices.size == 1
    assert sorted(sampler_of("rlep").draw(questions, 4, RNG).question_indices.tolist()) == [1, 2, 5]


def test_dapo_refills_as_often_as_asked():
    for method, num_refills in ((sampler_of("dapo"), 9), (sampler_of("dapo", max_refills=2.0), 2)):
        step = SimpleNamespace(groups=[], batch_size=4, fresh=lambda num_questions: [num_questions])
        rounds = method.plan(step)
        asked = [next(rounds)]
        step.groups += [group(0, [1.0, 1.0]), group(1, [0.0, 1.0])]
        assert [*asked, *rounds] == [[4], *[[3]] * num_refills]


def test_a_draw_follows_its_probabilities():
    questions, tallies = columns_of(), Counter()
    rng = np.random.default_rng(1)
    for _ in range(4000):
        tallies.update(questions.draw(np.array([0.2, 0.0, 0.8]), 1, rng).question_indices.tolist())
    assert tallies[21] == 0
    assert tallies[22] / 4000 == pytest.approx(0.8, abs=0.03)


def test_weights_of_a_draw_need_no_sum_and_of_zeros_nothing_is_drawn():
    questions = columns_of()
    draws = [questions.draw(np.array(weights), 2, np.random.default_rng(1)) for weights in ([1, 0, 4], [0.2, 0, 0.8])]
    assert draws[0].question_indices.tolist() == draws[1].question_indices.tolist()
    np.testing.assert_allclose(draws[0].bucket_probabilities, [0.2, 0.0, 0.8, 0.0])
    assert questions.draw(np.zeros(3), 2, np.random.default_rng(1)).question_indices.size == 0


@pytest.mark.parametrize("weights", [[-0.5, 0.5, 1.0], [np.nan, 0.5, 0.5], [np.inf, 1.0, 1.0]])
def test_weights_that_are_none_are_refused_with_what_to_do(weights):
    with pytest.raises(ValueError, match=r"weights: expected .* in the question sampler"):
        columns_of().draw(np.array(weights), 1, np.random.default_rng(1))
