"""Small replay buffers and trajectories for tests of experience management."""

import numpy as np

from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.types import Trajectory

K = 8
NUM_QUESTIONS = 50


def success(question_index, tokens, trajectory_id=0, rollout_step=1, log_probs=None):
    token_ids = np.asarray(tokens, dtype=np.int32)
    probs = -0.01 * token_ids if log_probs is None else log_probs
    return Trajectory(
        question_index,
        token_ids,
        np.asarray(probs, dtype=np.float32),
        1.0,
        trajectory_id=trajectory_id,
        rollout_step=rollout_step,
    )


def empty_buffer(directory, num_questions=NUM_QUESTIONS):
    return ReplayBuffer(directory, num_questions, K)


def random_successes(rng, num, step, first_id=0):
    return [
        success(
            int(rng.integers(NUM_QUESTIONS)),
            rng.integers(0, 5, rng.integers(1, 4) if rng.random() < 0.3 else rng.integers(1, 40)),
            trajectory_id=first_id + i,
            rollout_step=step,
        )
        for i in range(num)
    ]


def take_steps(buffer, rng, first_step, num_steps):
    """Do what training steps do to a buffer, and return everything that they saw of it."""
    seen = []
    for step in range(first_step, first_step + num_steps):
        inserted = random_successes(rng, 12, step, first_id=100 * step)
        seen.append(buffer.insert(inserted))
        for trajectory in inserted:
            if buffer.bucket_of(trajectory.question_index) is not None:
                buffer.set_bucket(trajectory.question_index, int(rng.integers(0, K + 1)))
        buffer.retire(int(rng.integers(NUM_QUESTIONS)))
        buffered = [item for item in inserted if buffer.bucket_of(item.question_index) is not None][:3]
        oldest = [int(buffer.rows_of(item.question_index)[0]) for item in buffered]
        sizes = [item.token_ids.size for item in buffer.experiences(np.array(oldest, dtype=np.int64))]
        seen.append(buffer.refresh(oldest, [-rng.random(size).astype(np.float32) for size in sizes], step))
        drawn = rng.permutation(np.concatenate([buffer.members(bucket) for bucket in range(1, K + 1)]))[:5]
        buffer.record_draws(drawn, 1)
        for question in drawn.tolist():
            rows = buffer.rows_of(question)
            seen.append(contents(buffer, rows))
            buffer.record_entropies(rows, rng.random(rows.size).astype(np.float32))
        seen.append(bookkeeping(buffer))
    return seen


def contents(buffer, rows):
    return [
        (
            e.row, e.trajectory_id, e.question_index, e.rollout_step, e.reward, e.token_ids.tobytes(),
            e.behavior_log_probs.tobytes(),
        )
        for e in buffer.experiences(rows)
    ]  # fmt: skip


def bookkeeping(buffer):
    everything = np.arange(NUM_QUESTIONS)
    rows = [buffer.rows_of(question).tolist() for question in everything]
    flat = np.array([row for item in rows for row in item], dtype=np.int64)
    return {
        "members": [buffer.members(bucket).tolist() for bucket in range(K + 1)],
        "sizes": buffer.bucket_sizes().tolist(), "rows": rows,
        "newest": buffer.newest_rollout_steps(everything).tolist(), "draws": buffer.num_draws(everything).tolist(),
        "entropies": buffer.last_entropies(flat).tobytes(),
        "counts": (buffer.num_questions, buffer.num_drawable, buffer.num_trajectories, buffer.num_tokens),
        "questions": buffer.questions().tolist(),
    }  # fmt: skip
