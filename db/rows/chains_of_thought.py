"""Plain rows about chains of thought: code in them, entropy against validity, judges against others."""

import math
from dataclasses import dataclass
from enum import StrEnum

EASY_ABOVE = 0.75
HARD_UP_TO = 0.25
ALL = "all"
"""The group of all answer-correct trajectories, those of solved questions included."""


class Difficulty(StrEnum):
    """The paper's groups of questions by online correctness rate; it lists 75% twice, here that is medium."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One half of a line of the paper's code table, over answer-correct trajectories.

    `cot_correctness` is the share of valid ones among the judged, users' verdicts included, NaN without any;
    `num_by_judge` and `num_valid_by_judge` are the judge's only.
    """

    group: str
    has_code: bool
    num_trajectories: int
    mean_entropy: float
    entropy_half_interval: float
    """Half of its 95% interval, NaN of fewer than two trajectories."""
    num_judged: int
    cot_correctness: float
    num_by_judge: int
    num_valid_by_judge: int


@dataclass(frozen=True, slots=True)
class ShareLine:
    """Shares of marked trajectories in one step, the buffer's after it; None without trajectories."""

    step: int
    rollouts: float | None
    successes: float | None
    buffer: float | None
    replays: float | None


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How many trajectories fit exactly these rules (a bit each) and have, or have not, a Python block."""

    code_rules: int
    has_python_block: bool
    num_trajectories: int
    num_correct: int


@dataclass(frozen=True, slots=True)
class EntropyPoint:
    """One answer-correct trajectory: entropy and log-prob are means over its tokens, in nats."""

    difficulty: Difficulty | None
    has_code: bool | None
    is_valid: bool | None
    mean_entropy: float
    mean_log_prob: float

    @property
    def perplexity(self) -> float:
        """Exp of the mean negative log-likelihood (appendix, "Alternative Selection Metrics"), perhaps infinite."""
        try:
            return math.exp(-self.mean_log_prob)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class EntropyPoints:
    """The answer-correct trajectories of a run, or of a long run one in every `stride`."""

    stride: int
    points: tuple[EntropyPoint, ...]


@dataclass(frozen=True, slots=True)
class AgreementRow:
    """A judge's verdicts and those of `other`, the oracle or users, on trajectories that both judged."""

    other: str
    num_both_valid: int
    num_only_judge: int
    """Valid for the judge, invalid for the other."""
    num_only_other: int
    num_both_invalid: int

    @property
    def num_compared(self) -> int:
        """Trajectories with both verdicts."""
        return self.num_both_valid + self.num_only_judge + self.num_only_other + self.num_both_invalid


@dataclass(frozen=True, slots=True)
class SavedCase:
    """The key of a case: two trajectories of one question; ids are unique within an attempt."""

    run_id: str
    attempt: int
    low_trajectory_id: int
    high_trajectory_id: int


@dataclass(frozen=True, slots=True)
class CaseResponse:
    """One response as the paper shows it: reward, entropy, verdict on its chain of thought, text."""

    trajectory_id: int
    step: int
    reward: float
    entropy: float | None
    is_valid: bool | None
    has_code: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class SnowballCase:
    """One case: responses of low and high entropy, or one response as both; `step` is that of `low`."""

    run_id: str
    attempt: int
    step: int
    question_index: int
    question: str
    truth: str
    low: CaseResponse
    high: CaseResponse

    @property
    def steps(self) -> str:
        """The step of both responses, or both steps, in words."""
        if self.low.step == self.high.step:
            return f"step {self.step:,}"
        return f"steps {self.low.step:,} (low) and {self.high.step:,} (high)"

    @property
    def responses(self) -> dict[str, CaseResponse]:
        """The responses by the end of entropy that they show, one of a case of a single response."""
        both = {"low": self.low, "high": self.high}
        return both if self.low.trajectory_id != self.high.trajectory_id else {"single": self.low}

    @property
    def saved(self) -> SavedCase:
        """The key of this case."""
        return SavedCase(self.run_id, self.attempt, self.low.trajectory_id, self.high.trajectory_id)


@dataclass(frozen=True, slots=True)
class CaseSetRow:
    """A named set of saved cases, over all runs."""

    name: str
    num_cases: int
    num_runs: int
