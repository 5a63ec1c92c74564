"""The groups of line 23 of Algorithm 1: checked, and without those whose rollouts failed."""

from collections.abc import Sequence

from exgrpo_core.engine import RolloutRequest
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import RolloutGroup


def keep_generated(
    requests: Sequence[RolloutRequest], groups: Sequence[RolloutGroup], report: StepReport
) -> list[RolloutGroup]:
    """Return the groups that have their rollouts; those that have none are counted, with a notice.

    Raises:
        ValueError: The engine broke its contract: another question, or another number of rollouts.
    """
    for request, group in zip(requests, groups, strict=True):
        if group.question.index != request.question.index or len(group.trajectories) not in (0, request.num_rollouts):
            raise ValueError(
                f"engine.rollout: expected {request.num_rollouts} rollouts of question {request.question.index}, "
                f"got {len(group.trajectories)} of question {group.question.index}."
            )
    kept = [group for group in groups if group.trajectories]
    num_failed = len(groups) - len(kept)
    report.metrics["rollouts/failed_groups"] = report.metrics.get("rollouts/failed_groups", 0.0) + num_failed
    if num_failed:
        report.notices.append(f"{num_failed} of {len(groups)} questions are left out: a rollout of each failed twice.")
    return kept
