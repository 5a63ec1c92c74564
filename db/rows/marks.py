"""Plain rows of trajectories that users marked."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MarkedTrajectory:
    """One mark on one trajectory; ids are unique within an attempt."""

    run_id: str
    attempt: int
    trajectory_id: int
    mark: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class MarkedRow:
    """A marked trajectory in a list."""

    marked: MarkedTrajectory
    run_name: str
    step: int
    question_index: int
    prompt_text: str
    answer: str
    reward: float
    mean_entropy: float
    num_tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class MarkCount:
    """A mark with its numbers of trajectories and runs."""

    mark: str
    num_trajectories: int
    num_runs: int
