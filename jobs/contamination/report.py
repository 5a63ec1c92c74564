"""What the probes of contamination say of a model and a benchmark; loads no engine."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from db.statistics.differences import binomial_tail
from exgrpo_core.bounded_json import UnreadableFileError, read_sealed, seal
from exgrpo_core.durable_files import write_whole
from exgrpo_core.faults import Fault, FaultKind
from jobs.runs.directory import WORKBENCH_FOLDER

REPORTS_FOLDER = "contamination"
SIGNIFICANCE = 0.01
"""Largest p-value of a probe that counts as a sign of contamination."""
LARGE_OVERLAP = 0.5
"""Share of a question's runs of words in training data from which the question counts as overlapping."""


Count = Annotated[int, Field(ge=0, le=1_000_000)]
"""Of questions or versions; a larger one in a file keeps the page busy for minutes."""


@dataclass(frozen=True, slots=True)
class ModelProbe:
    """Two comparisons of questions with the same questions with other numbers, on one model."""

    num_compared: Count
    """Questions that have numbers to change."""
    num_completed: Count
    """Questions whose second half the model writes word for word, given the first."""
    num_completed_changed: Count
    """The same of one version with other numbers of each."""
    num_likeliest: Count
    """Questions that are likelier to the model than every version with other numbers."""
    num_versions: Annotated[Count, Field(ge=1)]
    """Versions with other numbers a question."""

    @property
    def completion_p_value(self) -> float:
        """One-sided binomial test: unseen, a completed text is the question or its version with equal chance.

        A pair completed on both sides counts on both, so that the p-value is too large rather than too small.
        """
        return binomial_tail(self.num_completed, self.num_completed + self.num_completed_changed, 0.5)

    @property
    def number_p_value(self) -> float:
        """One-sided binomial test: an unseen question is the likeliest of its versions as often as any other."""
        return binomial_tail(self.num_likeliest, self.num_compared, 1 / (self.num_versions + 1))


@dataclass(frozen=True, slots=True)
class ContaminationReport:
    """The probes of one model on one benchmark."""

    model: str
    benchmark: str
    made_at: str
    """UTC, in ISO's format."""
    num_questions: Annotated[Count, Field(ge=1)]
    training_data: str | None
    """The data that questions were compared with, None if there were none."""
    num_overlapping: Count
    probe: ModelProbe

    @property
    def was_tested(self) -> bool:
        """Whether any probe had something to compare."""
        return self.probe.num_compared > 0 or self.training_data is not None

    def signs(self) -> list[str]:
        """Return a sentence on each sign of contamination; none where no probe found any."""
        probe, sentences = self.probe, []
        if self.num_overlapping:
            sentences.append(
                f"{self.num_overlapping:,} of {self.num_questions:,} questions share at least half of their runs of "
                f"words with {self.training_data}."
            )
        if probe.completion_p_value <= SIGNIFICANCE:
            sentences.append(
                f"The model completes {probe.num_completed:,} of {probe.num_compared:,} half questions word for word, "
                f"with other numbers {probe.num_completed_changed:,} (p = {probe.completion_p_value:.2g})."
            )
        if probe.number_p_value <= SIGNIFICANCE:
            sentences.append(
                f"{probe.num_likeliest:,} of {probe.num_compared:,} questions are likelier to the model than "
                f"{probe.num_versions} versions with other numbers (p = {probe.number_p_value:.2g})."
            )
        return sentences


_REPORT = TypeAdapter(ContaminationReport)


def write_report(runs_root: Path, report: ContaminationReport) -> Path:
    """Write a report into the workbench's folder and return its path."""
    folder = runs_root / WORKBENCH_FOLDER / REPORTS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    path = folder / f"{stamp}-{report.benchmark}.json"
    write_whole(path, seal(json.dumps(asdict(report)).encode()))
    return path


def read_reports(runs_root: Path) -> tuple[list[ContaminationReport], list[Fault]]:
    """Return the reports, newest first, and the files that are damaged or no reports."""
    reports, faults = [], []
    for path in sorted((runs_root / WORKBENCH_FOLDER / REPORTS_FOLDER).glob("*.json"), reverse=True):
        try:
            reports.append(_REPORT.validate_python(read_sealed(path)))
        except (OSError, UnreadableFileError, ValidationError):
            faults.append(Fault(FaultKind.CHANGED, f"{WORKBENCH_FOLDER}/{REPORTS_FOLDER}/{path.name}"))
    return reports, faults
