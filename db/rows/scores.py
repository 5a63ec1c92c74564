"""Rows of benchmark scores and of their comparison, as pages and commands get them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from exgrpo.db.statistics import score_interval

ScoredRuns = tuple[tuple[str, str], ...]
"""(benchmark, id of the evaluation whose score counts) of each benchmark that a model was scored on.

Several evaluations of one benchmark are those of models that were trained alike with other seeds.
"""


@dataclass(frozen=True, slots=True)
class BenchmarkScoreRow:
    """One benchmark of one evaluation by one scheme. `run_id` is the evaluation, `source_run_id` the scored run."""

    run_id: str
    run_name: str
    benchmark: str
    title: str
    scheme: str
    score: float
    standard_error: float
    """Clustered over questions."""
    num_questions: int
    samples_per_question: int
    outcomes: dict[str, int]
    comparability_key: str
    comparability: dict[str, Any]
    model: str
    source_run_id: str | None
    source_step: int | None
    source_name: str | None
    """The name of the run that was scored, None for a model from elsewhere."""
    method: str
    """The training method of the scored run; empty for a model from elsewhere."""
    backbone: str
    """The model at the start of training, or the model itself."""
    mean_tokens: float
    truncated_share: float
    at: datetime
    reward_means: dict[str, float] = field(default_factory=dict)
    """Mean of each part of a training reward over the answers, by its name; empty where none was asked for."""
    chosen_as: str = ""
    """`last` or `best` where the checkpoint was asked for so before it was scored; empty for one by its step."""

    interval: tuple[float, float] = field(init=False)
    """Ends of the score's 95% interval over questions, NaN of fewer than two."""

    def __post_init__(self) -> None:
        ends = score_interval(self.score, self.standard_error, self.num_questions)
        object.__setattr__(self, "interval", ends)

    @property
    def choice(self) -> str:
        """How the checkpoint was chosen, in words that follow its step."""
        return {"last": ", the last", "best": ", best on held-out questions"}.get(self.chosen_as, "")

    @property
    def metric(self) -> str:
        """Avg@n, or Pass@1 of one sample."""
        return "Pass@1" if self.samples_per_question == 1 else f"Avg@{self.samples_per_question}"


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """Two models on one benchmark, or on the mean of several: second minus first on the questions that both have."""

    benchmark: str
    num_questions: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    """Ends of a 95% interval over questions, samples, and training seeds where there are several."""
    p_value: float
    """Two-sided, by Holm's correction for all rows of a comparison."""
    num_won: int
    """Questions that the second model answers correctly more often."""
    num_lost: int
    num_seeds: tuple[int, int] = (1, 1)
    """Training seeds of the first and of the second."""
    is_paired: bool = False
    """Whether both sides are of the same seeds, which the interval takes as pairs."""
    differing: tuple[str, ...] = ()
    """The differing parts of the comparability keys; a page must show a warning if there are any."""


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One question that both models were asked: the share of correct answers of each."""

    benchmark: str
    question_id: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


def describe_intervals(rows: Sequence[ComparisonRow], name_of: Callable[[str], str] = str) -> str:
    """Return in words what the 95% intervals of a comparison cover, benchmark by benchmark where they differ."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(_coverage(row), []).append(name_of(row.benchmark))
    texts = list(names) if len(names) == 1 else [f"{text} ({', '.join(names[text])})" for text in names]
    return f"95% intervals cover other questions and other samples, {'; '.join(texts)}"


def _coverage(row: ComparisonRow) -> str:
    if min(row.num_seeds) > 1:
        pairs = "paired by training seed" if row.is_paired else "not paired: both sides need the same seeds, each once"
        return f"and other training seeds ({row.num_seeds[0]} and {row.num_seeds[1]} were run, {pairs})"
    sides = [side for side, count in zip(("first", "second"), row.num_seeds, strict=True) if count == 1]
    return f"not another training run of the {' or the '.join(sides)}"
