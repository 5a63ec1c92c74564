"""Plain rows that queries return and pages show. Times are UTC, lengths tokens, entropies nats."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from exgrpo.db.statistics import score_interval
from exgrpo_core.errors import UserError

Badge = Literal[
    "no_reward", "no_gradient", "empty_buffer", "entropy_collapse", "not_finite", "all_retired",
    "stalled", "damaged", "not_shown", "not_recorded",
]  # fmt: skip
"""What is wrong with a run, in one word; the last four are no matter of its metrics."""


class UnknownRunError(UserError, LookupError):
    """The database knows no run of this id."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as the runs list shows it."""

    run_id: str
    name: str
    status: str
    status_reason: str
    method: str
    """Short name: a replay method's title, LUFFY, Dr.GRPO, GRPO or masked GRPO; unknown of a recorded run."""
    model: str
    engine: str
    dataset: str
    preset: str | None
    step: int
    num_steps: int
    attempt: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    last_event_at: datetime | None
    seconds_per_step: float | None
    last_pass_at_1: float | None
    """Pass@1 of the last training batch."""
    last_avg_at_n: float | None
    """Newest held-out Avg@n."""
    pass_at_1_curve: tuple[float, ...]
    """At most 40 points of Pass@1, evenly spread over the steps."""
    health: tuple[Badge, ...]
    tags: tuple[str, ...]
    parent_run_id: str | None
    branched_from_step: int | None = None
    """The step of the parent's checkpoint that a branch continues from; None of every other run."""
    token_budget: int | None = None
    """The run ends with the step in which it has generated so many tokens, if not earlier."""
    generated_tokens: float | None = None
    kind: str = "train"
    """What kind of job: train, or eval and others, which have no steps and no method; unreadable if unknown."""
    is_archived: bool = False
    """Whether a user hid it from the list."""
    is_synthetic: bool = False
    """Whether `python -m bench.synthetic_runs` generated it."""
    is_recorded: bool = False
    """Whether another program recorded it, or its rollouts were imported: method and model are unknown."""
    is_imported: bool = False
    """Whether its rollouts were imported: nobody runs it, it has what its source has so far."""
    has_settings: bool = True
    """Whether its specification could be read."""
    faults: tuple[str, ...] = ()
    """Sentences on damage of its files."""
    left_out: tuple[str, ...] = ()
    """Sentences on what its recorder was given and could not record: the files are whole."""
    not_shown: str = ""
    """Why the program or the database could not show all of it, and the remedy; empty if all is shown."""

    @property
    def steps_left(self) -> float:
        """Steps that a training run has yet to do; if its tokens end it, at its mean tokens per step so far."""
        left = float(self.num_steps - self.step)
        if self.token_budget and self.generated_tokens:
            left = min(left, self.step * (self.token_budget / self.generated_tokens - 1.0))
        return max(0.0, left)

    @property
    def is_fine_tuning(self) -> bool:
        """Whether it imitates demonstrations: it has no rollouts, no replay buffer and no rewards."""
        return self.method == "SFT"


class StepNotice(NamedTuple):
    """What a step said about itself, such as questions that it left out."""

    step: int
    text: str


class MetricPoint(NamedTuple):
    """One value of one metric; a tuple, since pages keep copies of thousands."""

    step: int
    value: float


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One bucket in one step; buckets are numbers of correct rollouts of K."""

    step: int
    bucket: int
    num_questions: int
    probability: float
    num_drawn: int
    overflow: int


@dataclass(frozen=True, slots=True)
class RewardCountRow:
    """How many fresh responses of a step had a reward, or a part of it by name, from `least` up to `largest`."""

    step: int
    part: str
    least: float
    largest: float
    num_responses: int


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """Scores of one evaluation: `question_set` is training, held_out or a benchmark, `avg_at_n` with its error."""

    step: int
    question_set: str
    num_questions: int
    samples_per_question: int
    avg_at_n: float
    standard_error: float
    pass_at_n: float
    interval: tuple[float, float] = field(init=False)
    """Ends of its 95% interval over questions, NaN of fewer than two."""

    def __post_init__(self) -> None:
        ends = score_interval(self.avg_at_n, self.standard_error, self.num_questions)
        object.__setattr__(self, "interval", ends)


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A whole checkpoint; `path` is relative to the run directory."""

    step: int
    path: str
    num_bytes: int
    at: datetime
    kept_as: str = ""
    """What it is kept for: `newest`, `best held-out score`, or both."""


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt of a run; a resume opens a new one at `resumed_from_step` (None for the first)."""

    attempt: int
    resumed_from_step: int | None
    started_at: datetime | None
    ended_at: datetime | None
    status: str
    status_reason: str


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One candidate of a selection in one step."""

    step: int
    question_index: int
    bucket: int
    trajectory_id: int
    rollout_step: int
    num_tokens: int
    entropy: float
    nll: float
    score: float
    is_chosen: bool
