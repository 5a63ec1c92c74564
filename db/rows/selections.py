"""Plain rows of the selection audit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelectionRow:
    """The record of one drawn question's replay; the replay's fields are None if no replay is recorded.

    `birth_file` holds the chosen trajectory as it was generated; None if another run generated it.
    """

    question_index: int
    bucket: int
    chosen_trajectory_id: int
    replayed_trajectory_id: int | None
    num_tokens: int | None
    mean_entropy: float | None
    mean_log_prob: float | None
    mean_ratio: float | None
    max_ratio: float | None
    file: str | None
    birth_file: str | None


def age(step: int, born_step: int) -> int | None:
    """Return by how many steps a replay is older, None where a resume did the step that generated it again."""
    return step - born_step if step > born_step else None


@dataclass(frozen=True, slots=True)
class ReplayedGroupRow:
    """What a step replayed of one question without choosing among candidates, such as a stored group as a whole."""

    question_index: int
    num_trajectories: int
    num_correct: int
    first_born_step: int
    last_born_step: int
    is_external: bool
    num_tokens: float
    """Mean over the trajectories, as are the next three; NaN where it is not recorded."""
    mean_entropy: float
    mean_ratio: float
    advantage_size: float
    """|A|; 0 of a group without a gradient."""


@dataclass(frozen=True, slots=True)
class WrongChoiceRow:
    """A selection of a run that did not choose exactly one candidate, or not one with the lowest score."""

    step: int
    question_index: int
    num_chosen: int
    chosen_score: float
    lowest_score: float


@dataclass(frozen=True, slots=True)
class WeightLine:
    """Importance weights W of whole trajectories of one group, under the policy that scored them."""

    group: str
    num_trajectories: int
    token_ratio: float
    """Geometric mean of the ratio of a token, mean over trajectories."""
    mean: float
    """E[W]."""
    shaped_mean: float
    """E[f(W)], f(W) = W / (W + beta)."""
    square_mean: float
    """E[W^2], which the variance bounds A and B weigh squared gradients by."""
    largest: float
    """M."""
    effective_share: float
    """Effective sample size over the number of trajectories."""
