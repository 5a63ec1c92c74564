"""The paper's case layout: a question, the truth, and its surest and least sure correct response with verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.analysis.facts import TrajectoryFacts


@dataclass(frozen=True, slots=True)
class CaseResponse:
    """One response as the paper shows it: reward, entropy, verdict on its chain of thought, text."""

    trajectory_id: int
    step: int
    reward: float
    entropy: float
    is_valid: bool | None
    has_code: bool
    text: str


@dataclass(frozen=True, slots=True)
class SnowballCase:
    """One case: `low` and `high` are the correct responses of lowest and highest entropy in the same step."""

    question_index: int
    question: str
    truth: str
    low: CaseResponse
    high: CaseResponse


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """Two correct trajectories of one question in one step, before their texts are looked up."""

    low: TrajectoryFacts
    high: TrajectoryFacts

    @property
    def interest(self) -> tuple[bool, bool, float]:
        """What cases are ordered by: a valid against an invalid chain, code in the uncertain one, entropy gap."""
        tells_apart = self.low.is_valid is True and self.high.is_valid is False
        gap = self.high.mean_entropy - self.low.mean_entropy
        return tells_apart, self.high.has_code and not self.low.has_code, gap


def choose_cases(rows: Sequence[TrajectoryFacts], num_cases: int) -> list[CaseChoice]:
    """Return the most telling cases, at most one a question, most telling first."""
    groups: dict[tuple[int, int], list[TrajectoryFacts]] = {}
    for row in rows:
        if row.is_correct:
            groups.setdefault((row.question_index, row.step), []).append(row)
    best: dict[int, CaseChoice] = {}
    for (question_index, _), members in groups.items():
        ordered = sorted(members, key=lambda row: (row.mean_entropy, row.trajectory_id))
        if len(ordered) < 2:
            continue
        choice = CaseChoice(ordered[0], ordered[-1])
        if question_index not in best or choice.interest > best[question_index].interest:
            best[question_index] = choice
    return sorted(best.values(), key=lambda choice: choice.interest, reverse=True)[:num_cases]


def lay_out_case(choice: CaseChoice, texts: Mapping[int, str], question: str, truth: str) -> SnowballCase:
    """Return the case with its texts; `texts` is by trajectory id."""

    def response(row: TrajectoryFacts) -> CaseResponse:
        text = texts[row.trajectory_id]
        return CaseResponse(
            row.trajectory_id, row.step, float(row.is_correct), row.mean_entropy, row.is_valid, row.has_code, text
        )

    return SnowballCase(choice.low.question_index, question, truth, response(choice.low), response(choice.high))
