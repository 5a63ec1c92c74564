"""Plain rows of the replay buffer's page: its state at a step and the questions of each bar."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class BufferState:
    """The buffer after a step: the bucket of every buffered question, and the questions that are retired."""

    buckets: dict[int, int]
    retired: frozenset[int]


@dataclass(frozen=True, slots=True)
class BufferedQuestionRow:
    """A question with what the buffer holds of it after a step and how often that was replayed."""

    question_index: int
    prompt_text: str
    num_stored: int
    num_replays: int
    last_replayed_step: int | None


class StoredTrajectory(NamedTuple):
    """A trajectory of the buffer after a step: its question, the step that generated it, and how often it was replayed.

    A tuple, since a buffer holds many thousand.
    """

    question_index: int
    rollout_step: int
    num_replays: int


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A stored trajectory with the newest scores known before a step: `scored_step` is their step.

    It is the step that generated it if it was never a candidate.
    """

    question_index: int
    trajectory_id: int
    rollout_step: int
    scored_step: int
    num_tokens: int
    entropy: float
    nll: float


@dataclass(frozen=True, slots=True)
class ConcentrationPoint:
    """How the replays up to a step are spread over the questions that were ever stored."""

    step: int
    num_replays: int
    num_replayed: int
    """Different questions among them."""
    num_questions: int
    top_share: float
    """Share of the replays that the tenth of the questions with most replays has."""
    even_share: float
    """The same where every question was drawn with the same probability, simulated."""


@dataclass(frozen=True, slots=True)
class DiversityPoint:
    """Different final answers among the rollouts of a question in a step, mean over questions; NaN without any."""

    step: int
    fresh: float
    """Of fresh questions, among K."""
    replayed: float
    """Of replayed questions, among K-1."""


@dataclass(frozen=True, slots=True)
class RetirementLine:
    """Attempts at questions of one bucket, how many retired them, and later attempts at the retired ones.

    Shares are NaN without any.
    """

    bucket: int | None
    """The bucket at the attempt; None: the question was in no bucket."""
    num_attempts: int
    num_retired: int
    num_expected: float
    """Retired ones if p = k/K held: the sum of p^n over attempts of n fresh rollouts. NaN without a bucket."""
    num_retests: int
    retest_rate: float
    """Share of correct rollouts in later attempts."""
    retest_solved: float
    """Share of later attempts with every rollout correct."""


@dataclass(frozen=True, slots=True)
class SelectionRow:
    """The record of one drawn question's replay; the replay's fields are None if no replay is recorded.

    `rollout_file` holds the chosen trajectory as it was generated; None if another run generated it.
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
    rollout_file: str | None


@dataclass(frozen=True, slots=True)
class StepTrajectoryRow:
    """A fresh or replayed trajectory of a step. Only fresh ones have verdict and `extra`, only replays the rest."""

    group_position: int
    question_index: int
    trajectory_id: int
    reward: float
    advantage: float
    file: str
    verdict: str = ""
    is_truncated: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    is_replayed: bool = False
    rollout_step: int | None = None
    is_external: bool = False
    num_tokens: int | None = None
    mean_entropy: float | None = None
    mean_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class BufferChangeRow:
    """One change of the replay buffer; a bucket is None outside of it."""

    kind: str
    question_index: int
    trajectory_id: int | None
    bucket_from: int | None
    bucket_to: int | None


def age(step: int, rollout_step: int) -> int | None:
    """Return by how many steps a replay is older, None where a resume did the step that generated it again."""
    return step - rollout_step if step > rollout_step else None


@dataclass(frozen=True, slots=True)
class WrongChoiceRow:
    """A selection of a run that did not choose exactly one candidate, or not one with the lowest score."""

    step: int
    question_index: int
    num_chosen: int
    chosen_score: float
    lowest_score: float
