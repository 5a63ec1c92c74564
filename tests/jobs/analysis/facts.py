"""Trajectories as statistics see them, of few words."""

from jobs.analysis.facts import TrajectoryFacts


def fact(trajectory_id: int = 1, **changes: object) -> TrajectoryFacts:
    values = {
        "trajectory_id": trajectory_id,
        "step": 1,
        "question_index": 0,
        "is_correct": True,
        "correctness_rate": 0.5,
        "is_valid": True,
        "has_code": False,
        "mean_entropy": 0.1,
        "mean_log_prob": -0.1,
    }
    return TrajectoryFacts(**values | changes)
