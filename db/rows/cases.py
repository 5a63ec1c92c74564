"""Plain rows of snowball cases: a question with a correct response of low and one of high entropy."""

from dataclasses import dataclass


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
    entropy: float
    is_valid: bool | None
    has_code: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class SnowballCase:
    """One case: correct responses of low and high entropy; `step` is that of `low`."""

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
    def saved(self) -> SavedCase:
        """The key of this case."""
        return SavedCase(self.run_id, self.attempt, self.low.trajectory_id, self.high.trajectory_id)


@dataclass(frozen=True, slots=True)
class CaseSetRow:
    """A named set of saved cases, over all runs."""

    name: str
    num_cases: int
    num_runs: int
