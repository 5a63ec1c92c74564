"""A step's report as stock verl logs and dumps a step."""

from collections.abc import Mapping, Sequence
from typing import Any

from exgrpo_core.types import RolloutGroup

VERL_NAMES = {
    "reward/mean": "critic/score/mean",
    "response/mean_tokens": "response_length/mean",
    "response/max_tokens": "response_length/max",
    "response/truncated_share": "response_length/clip_ratio",
    "policy/entropy": "actor/entropy",
    "loss/policy": "actor/pg_loss",
    "loss/kl": "actor/kl_loss",
    "ratio/clip_share": "actor/pg_clipfrac",
    "optim/gradient_norm": "actor/grad_norm",
    "seconds/rollout": "timing_s/gen",
    "seconds/update": "timing_s/update_actor",
    "seconds/step": "perf/time_per_step",
}
"""verl's names of metrics that every run of verl has; all others keep theirs (`step_report.METRICS`)."""


def named_as_in_verl(metrics: Mapping[str, float], num_gpus: int) -> dict[str, float]:
    """Return the metrics with verl's names, and verl's throughput in tokens a second and GPU."""
    named = {VERL_NAMES.get(name, name): value for name, value in metrics.items()}
    return named | {"perf/throughput": metrics["tokens/generated"] / metrics["seconds/step"] / num_gpus}


def dumped_rows(groups: Sequence[RolloutGroup]) -> dict[str, list[Any]]:
    """Return columns of all trajectories of a step, the replayed ones included, by verl's names of them.

    `inputs` and `outputs` are token ids; `rollout_step` is the step that a trajectory was generated in.
    """
    rows = [
        (group.question, item.token_ids, item.reward, item.rollout_step, is_replayed)
        for group in groups
        for items, is_replayed in ((group.trajectories, False), ([one.experience for one in group.replays], True))
        for item in items
    ]
    return {
        "inputs": [question.prompt_ids.tolist() for question, *_ in rows],
        "outputs": [token_ids.tolist() for _, token_ids, *_ in rows],
        "gts": [question.answer for question, *_ in rows],
        "scores": [float(reward) for _, _, reward, *_ in rows],
        "rollout_step": [rollout_step for *_, rollout_step, _ in rows],
        "is_replayed": [is_replayed for *_, is_replayed in rows],
    }
