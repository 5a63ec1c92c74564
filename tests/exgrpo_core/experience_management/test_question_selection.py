import dataclasses
from collections import Counter

import numpy as np
import pytest

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.experience_management.bucket_sampler import partition
from exgrpo_core.methods.columns import QuestionColumns
from exgrpo_core.methods.loading import QUESTIONS, build_part
from exgrpo_core.step.rollouts import bucket_counts
from tests.exgrpo_core.experience_management.buffers import K, empty_buffer, success

CONFIG = ExGRPOConfig(rollouts_per_question=K)
STEP = 20
SELECTIONS = ("gaussian", "uniform", "recent")


def configured(selection, **changes):
    return dataclasses.replace(CONFIG, question_selection=selection, **changes)


def draw_questions(buffer, config, num_questions, step, rng):
    return build_part(QUESTIONS, config).draw(QuestionColumns(buffer, step), num_questions, rng)


@pytest.fixture
def buffer(tmp_path):
    """Questions 0..39: bucket q % 9, newest trajectory of step q % 20."""
    opened = empty_buffer(tmp_path)
    for question in range(40):
        opened.insert([success(question, [1], rollout_step=0), success(question, [2], rollout_step=question % 20)])
        opened.set_bucket(question, question % 9)
    return opened


def test_partition_holds_buckets_1_to_k_with_gaussian_probabilities(buffer):
    for question in (3, 12, 21, 30, 39):
        buffer.retire(question)
    parts = partition(QuestionColumns(buffer, STEP).bucket_members(), 0.5, 1.0)
    assert [sorted(member.tolist()) for member in parts.members] == [
        [q for q in range(40) if q % 9 == bucket and q % 9 != 3] for bucket in range(1, 9)
    ]
    assert parts.sizes.tolist() == [5, 5, 0, 4, 4, 4, 4, 4]
    weights = np.exp(-0.5 * (np.arange(1, 9) / 8 - 0.5) ** 2) * (parts.sizes > 0)
    np.testing.assert_allclose(parts.probabilities, weights / weights.sum())
    empty = partition([np.empty(0, dtype=np.int64)] * K, 0.5, 1.0)
    assert empty.sizes.tolist() == empty.probabilities.tolist() == [0] * K


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("num_questions", [0, 10, 64])
def test_draw_holds_different_drawable_questions_as_many_as_wanted_or_there(buffer, selection, num_questions):
    draw = draw_questions(
        buffer, configured(selection, recent_steps=1000), num_questions, STEP, np.random.default_rng(0)
    )
    drawn, buckets = draw.question_indices.tolist(), bucket_counts(buffer, draw)
    assert len(set(drawn)) == len(drawn) == min(num_questions, buffer.num_drawable)
    assert all(question % 9 != 0 for question in drawn)
    assert [count.bucket for count in buckets] == list(range(K + 1))
    assert [count.num_questions for count in buckets] == buffer.bucket_sizes().tolist()
    by_bucket = Counter(question % 9 for question in drawn)
    assert [count.num_drawn for count in buckets] == [by_bucket[bucket] for bucket in range(K + 1)]
    assert sum(count.probability for count in buckets) == pytest.approx(1.0)
    assert buckets[0].probability == buckets[0].num_drawn == 0


def test_gaussian_draw_reports_what_short_buckets_could_not_give(buffer):
    config = dataclasses.replace(CONFIG, bucket_spread=0.05)
    draw = draw_questions(buffer, config, 10, STEP, np.random.default_rng(0))
    buckets = bucket_counts(buffer, draw)
    assert buckets[4].num_drawn == buckets[4].num_questions == 4
    assert buckets[4].overflow > 0
    assert draw.question_indices.size == 10


def test_uniform_draw_gives_each_bucket_the_chance_of_its_questions(buffer):
    sizes = buffer.bucket_sizes()[1:]
    draw = draw_questions(buffer, configured("uniform"), 5, STEP, np.random.default_rng(0))
    np.testing.assert_allclose(draw.bucket_probabilities, sizes / sizes.sum())


def test_recent_draw_takes_questions_whose_newest_trajectory_is_young_enough(buffer):
    # Step 20, at most 3 steps old: born in 17, 18 or 19; questions 18 and 27, 36 of bucket 0 are not drawn.
    config = configured("recent", recent_steps=3)
    draw = draw_questions(buffer, config, 64, STEP, np.random.default_rng(0))
    assert sorted(draw.question_indices.tolist()) == [17, 19, 37, 38, 39]
