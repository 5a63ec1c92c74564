"""What a trajectory needs to be stored: a question, tokens, and a finite log-prob for each."""

from collections.abc import Sequence

import numpy as np

from exgrpo_core.types import Float32Array, Int32Array, Trajectory

_INT32 = np.dtype("<i4")
_FLOAT32 = np.dtype("<f4")


def checked_arrays(
    trajectories: Sequence[Trajectory], num_questions: int
) -> tuple[list[Int32Array], list[Float32Array]]:
    """Return contiguous token ids and log-probs of each trajectory.

    Raises:
        ValueError: A trajectory names no question, is empty, or lacks a finite log-prob for a token.
    """
    all_token_ids, all_log_probs = [], []
    for trajectory in trajectories:
        token_ids = np.ascontiguousarray(trajectory.token_ids, _INT32)
        log_probs = np.ascontiguousarray(trajectory.log_probs, _FLOAT32)
        if not 0 <= trajectory.question_index < num_questions:
            raise ValueError(f"question_index: expected 0 to {num_questions - 1}, got {trajectory.question_index}.")
        if token_ids.ndim != 1 or token_ids.size == 0:
            raise ValueError(f"token_ids: trajectory {trajectory.trajectory_id} is empty; store responses only.")
        if log_probs.shape != token_ids.shape:
            raise _bad_log_probs(trajectory, token_ids.size)
        all_token_ids.append(token_ids)
        all_log_probs.append(log_probs)
    if not np.isfinite(np.concatenate(all_log_probs)).all():
        first = next(i for i, log_probs in enumerate(all_log_probs) if not np.isfinite(log_probs).all())
        raise _bad_log_probs(trajectories[first], all_token_ids[first].size)
    return all_token_ids, all_log_probs


def _bad_log_probs(trajectory: Trajectory, num_tokens: int) -> ValueError:
    return ValueError(
        f"log_probs: expected {num_tokens} finite numbers for trajectory {trajectory.trajectory_id}, one a token; "
        "check the engine's log-probs."
    )
