"""Metrics of one step, from its report and the state after it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from exgrpo_core.config import ExGRPOConfig, RewardKind
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step.collection import num_correct
from exgrpo_core.step_report import BufferEventKind, StepReport
from exgrpo_core.sums import CORRECT_REWARD, PASS_RATE, StepSums, mean_of
from exgrpo_core.types import RolloutGroup, Trajectory


class PhaseClock:
    """Seconds of a step by phase; all other time is management."""

    def __init__(self) -> None:
        self._began_at = time.perf_counter()
        self._seconds = {"rollout": 0.0, "score": 0.0, "update": 0.0}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the block to `name`."""
        began_at = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - began_at

    def seconds(self) -> dict[str, float]:
        """Return the metrics `seconds/*` so far."""
        step = time.perf_counter() - self._began_at
        phases = {f"seconds/{name}": value for name, value in self._seconds.items()}
        return phases | {"seconds/other": step - sum(self._seconds.values()), "seconds/step": step}


def mini_batch_metrics(mini_batches: Sequence[MiniBatch]) -> dict[str, float]:
    """Return how many questions masked GRPO and equal rewards leave in the mini-batches of a step."""
    num_left = [mini_batch.num_questions_left for mini_batch in mini_batches]
    return {"batch/questions_left": float(np.mean(num_left)), "batch/questions_left_min": float(min(num_left))}


def batch_pass_rate(groups: Sequence[RolloutGroup]) -> float:
    """Return Pass@1 of the batch: the share of fresh rollouts that are correct."""
    rewards = [trajectory.reward for group in groups for trajectory in group.trajectories]
    return float(np.mean(np.asarray(rewards) >= CORRECT_REWARD))


def step_metrics(state: ExGRPOState, config: ExGRPOConfig, report: StepReport) -> dict[str, float]:
    """Return every metric that the core knows; the engine adds ratios, losses and gradient."""
    metrics = _rollout_metrics(config, report) | _buffer_metrics(state, report)
    metrics["tokens/generated_total"] = state.num_generated_tokens
    metrics["rollouts/fresh_total"] = state.num_fresh_rollouts
    if config.replays_experience:
        metrics |= _replay_metrics(state, config, report)
    return metrics


def _rollout_metrics(config: ExGRPOConfig, report: StepReport) -> dict[str, float]:
    fresh = [trajectory for group in report.groups for trajectory in group.trajectories]
    sums = StepSums()
    sums.add(map(_as_row, fresh), ())
    metrics = sums.metrics()
    metrics["tokens/generated"] = float(sums.lengths - sum(item.num_prefix_tokens for item in fresh))
    replays = [replay for group in report.groups for replay in group.replays]
    metrics["tokens/replayed"] = float(sum(replay.experience.token_ids.size for replay in replays))
    metrics["replay/num_replayed"] = float(len(replays))
    metrics["replay/share"] = sum(group.has_replay for group in report.groups) / len(report.groups)
    metrics["batch/equal_rewards"] = float(sum(group.has_equal_rewards for group in report.groups))
    if config.reward_kind is not RewardKind.BINARY:
        metrics.pop(PASS_RATE, None)
        return metrics
    for name, is_replayed in (("fresh", False), ("replayed", True)):
        rolled_out = [group for group in report.groups if group.trajectories]
        part = [group for group in rolled_out if (group.has_replay or _is_drawn(group, report)) == is_replayed]
        if part:
            metrics[f"{PASS_RATE}_{name}"] = batch_pass_rate(part)
    metrics["reward/pass_at_k"] = sum(num_correct(group) > 0 for group in report.groups) / len(report.groups)
    return metrics


def _as_row(item: Trajectory) -> dict[str, Any]:
    """Return what sums need; parts of the reward are metrics of the engine's loop, under names that curves have."""
    return {
        "reward": float(item.reward),
        "verdict": item.verdict,
        "num_tokens": int(item.token_ids.size),
        "mean_entropy": mean_of(item.entropies),
        "is_truncated": item.is_truncated,
        "extra": None,
    }


def _buffer_metrics(state: ExGRPOState, report: StepReport) -> dict[str, float]:
    buffer = state.replay_buffer
    kinds = [event.kind for event in report.buffer_events]
    num_in_data = len(state.questions)
    return {
        "buffer/num_in_data": float(num_in_data),
        "buffer/ever_solved_share": (buffer.num_questions + len(state.retired_set)) / num_in_data,
        "buffer/memory_bytes": float(buffer.num_memory_bytes),
        "buffer/file_bytes": float(buffer.num_file_bytes),
        "buffer/num_questions": float(buffer.num_questions),
        "buffer/num_drawable": float(buffer.num_drawable),
        "buffer/num_trajectories": float(buffer.num_trajectories),
        "buffer/num_tokens": float(buffer.num_tokens),
        "buffer/num_retired": float(len(state.retired_set)),
        "experience/num_inserted": float(kinds.count(BufferEventKind.INSERTED)),
        "experience/num_duplicates": float(kinds.count(BufferEventKind.DUPLICATE)),
    }


def _replay_metrics(state: ExGRPOState, config: ExGRPOConfig, report: StepReport) -> dict[str, float]:
    num_wanted = config.num_experiential_wanted if report.is_replay_open else 0
    metrics = {
        "replay/shortfall": float(num_wanted - sum(_is_drawn(group, report) for group in report.groups)),
        "replay/num_candidates": float(sum(selection.entropies.size for selection in report.selections)),
    }
    replays = [replay for group in report.groups for replay in group.replays if not replay.is_external]
    if replays:
        ages = np.array([state.step - replay.experience.rollout_step for replay in replays])
        metrics["replay/age_mean"] = float(ages.mean())
        metrics["replay/age_max"] = float(ages.max())
    if not report.selections:
        return metrics
    drawn = np.array([selection.question_index for selection in report.selections])
    metrics["replay/draws_per_question"] = float(state.replay_buffer.num_draws(drawn).mean())
    chosen = np.concatenate([item.entropies[list(item.chosen)] for item in report.selections])
    entropies = np.concatenate([selection.entropies for selection in report.selections])
    metrics["replay/entropy_chosen"] = float(chosen.mean())
    nlls = np.concatenate([item.nlls[list(item.chosen)] for item in report.selections])
    metrics["replay/nll_chosen"] = float(np.mean(nlls))
    if entropies.size > chosen.size:
        rejected = entropies.sum(dtype=np.float64) - chosen.sum(dtype=np.float64)
        metrics["replay/entropy_rejected"] = float(rejected) / (entropies.size - chosen.size)
    return metrics


def _is_drawn(group: RolloutGroup, report: StepReport) -> bool:
    """Whether the group fills an experiential slot: some methods roll drawn questions out without a replay."""
    replays_stored = group.has_replay and not group.replays[0].is_external
    return replays_stored or group.question.index in report.drawn_questions
