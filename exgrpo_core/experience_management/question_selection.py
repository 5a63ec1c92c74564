"""Question selection: which buffered questions are replayed in a step (Algorithm 1, lines 7 and 8)."""

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.methods.columns import QuestionColumns, QuestionDraw
from exgrpo_core.methods.loading import build_sampler
from exgrpo_core.step_report import BucketCount


def draw_questions(
    buffer: ReplayBuffer, config: ExGRPOConfig, num_questions: int, step: int, rng: np.random.Generator
) -> QuestionDraw:
    """Draw at most `num_questions` of the buffer's drawable questions, as `question_selection` says."""
    return build_sampler(config).draw(QuestionColumns(buffer, step), num_questions, rng)


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
