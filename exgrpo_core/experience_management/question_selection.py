"""Question selection: which buffered questions are replayed in a step (Algorithm 1, lines 7 and 8)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exgrpo_core.config import ExGRPOConfig, QuestionSelection
from exgrpo_core.experience_management.bucket_sampler import draw_bucket_counts, sample_members
from exgrpo_core.experience_management.partition import partition
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.step_report import BucketCount
from exgrpo_core.types import Float64Array, Int64Array


@dataclass(frozen=True, slots=True)
class QuestionDraw:
    """The questions to replay, all different, and the buckets 0..K at the time of the draw."""

    question_indices: Int64Array
    buckets: list[BucketCount]


def draw_questions(
    buffer: ReplayBuffer, config: ExGRPOConfig, num_questions: int, step: int, rng: np.random.Generator
) -> QuestionDraw:
    """Draw min(`num_questions`, questions that may be drawn) of the buffer, as `question_selection` says."""
    return DRAWS[config.question_selection](buffer, config, num_questions, step, rng)


def _draw_gaussian(
    buffer: ReplayBuffer, config: ExGRPOConfig, num_questions: int, _step: int, rng: np.random.Generator
) -> QuestionDraw:
    """Algorithm 2: buckets by Gaussian weights, then uniformly within a bucket."""
    parts = partition(buffer, config)
    draw = draw_bucket_counts(parts.sizes, parts.probabilities, min(num_questions, buffer.num_drawable), rng)
    chosen = np.concatenate(sample_members(parts.members, draw.counts, rng))
    # Bucket 0 is first in the report and is never drawn.
    probabilities, counts, deficits = (
        np.concatenate(([0], part)) for part in (draw.probabilities, draw.counts, draw.deficits)
    )
    return QuestionDraw(chosen, _bucket_counts(buffer.bucket_sizes(), probabilities, counts, deficits))


def _draw_uniform(
    buffer: ReplayBuffer, _config: ExGRPOConfig, num_questions: int, _step: int, rng: np.random.Generator
) -> QuestionDraw:
    """Every drawable question with the same probability (the paper's "w/o Ques. Sel.")."""
    return _draw_from(buffer, buffer.questions(), num_questions, rng)


def _draw_recent(
    buffer: ReplayBuffer, config: ExGRPOConfig, num_questions: int, step: int, rng: np.random.Generator
) -> QuestionDraw:
    """Vanilla replay, as in RePO: questions with a trajectory at most `recent_steps` old, uniformly."""
    questions = buffer.questions()
    is_recent = buffer.newest_step(questions) >= step - config.recent_steps
    return _draw_from(buffer, questions[is_recent], num_questions, rng)


DRAWS: dict[QuestionSelection, Callable[[ReplayBuffer, ExGRPOConfig, int, int, np.random.Generator], QuestionDraw]] = {
    QuestionSelection.GAUSSIAN: _draw_gaussian,
    QuestionSelection.UNIFORM: _draw_uniform,
    QuestionSelection.RECENT: _draw_recent,
}
"""The draw of each rule, from buffer, configuration, number of questions, step and random generator."""


def _draw_from(buffer: ReplayBuffer, pool: Int64Array, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
    chosen = rng.choice(pool, min(num_questions, pool.size), replace=False) if pool.size else pool
    sizes = buffer.bucket_sizes()
    shares = np.bincount(buffer.buckets_of(pool), minlength=sizes.size) / max(pool.size, 1)
    counts = np.bincount(buffer.buckets_of(chosen), minlength=sizes.size)
    return QuestionDraw(chosen, _bucket_counts(sizes, shares, counts, np.zeros_like(sizes)))


def _bucket_counts(
    sizes: Int64Array, probabilities: Float64Array, counts: Int64Array, deficits: Int64Array
) -> list[BucketCount]:
    columns = zip(sizes.tolist(), probabilities.tolist(), counts.tolist(), deficits.tolist(), strict=True)
    return [
        BucketCount(bucket, num_questions, probability, num_drawn, deficit)
        for bucket, (num_questions, probability, num_drawn, deficit) in enumerate(columns)
    ]
