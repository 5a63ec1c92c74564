"""Plain rows of snowball cases: a question with its correct responses of lowest and highest entropy in one step."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SavedCase:
    """What names a case: two trajectories of one group; ids are unique within an attempt."""

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
    """One case: `low` and `high` are the correct responses of lowest and highest entropy in the same step."""

    run_id: str
    attempt: int
    step: int
    question_index: int
    question: str
    truth: str
    low: CaseResponse
    high: CaseResponse

    @property
    def saved(self) -> SavedCase:
        """What names this case."""
        return SavedCase(self.run_id, self.attempt, self.low.trajectory_id, self.high.trajectory_id)


@dataclass(frozen=True, slots=True)
class CaseSetRow:
    """A named set of saved cases, over all runs."""

    name: str
    num_cases: int
    num_runs: int
