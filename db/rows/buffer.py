"""Plain rows of the replay buffer's page: its state at a step and the questions of each bar."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BufferState:
    """The buffer after a step: the bucket of every buffered question, and the questions that are retired."""

    buckets: dict[int, int]
    retired: frozenset[int]


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One score of a candidate at a selection: its question's bucket then, its mean entropy, whether it was chosen."""

    bucket: int
    entropy: float
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class BufferedQuestionRow:
    """A question with what the buffer holds of it after a step and how often that was replayed."""

    question_index: int
    prompt_text: str
    num_stored: int
    num_replays: int
    last_replayed_step: int | None


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A stored trajectory with the newest scores known before a step: `scored_step` is their step.

    It is the step that generated it if it was never a candidate.
    """

    question_index: int
    trajectory_id: int
    born_step: int
    scored_step: int
    num_tokens: int
    entropy: float
    nll: float


@dataclass(frozen=True, slots=True)
class ConcentrationPoint:
    """How the replays up to a step are spread over the questions that were ever stored."""

    step: int
    num_replays: int
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
