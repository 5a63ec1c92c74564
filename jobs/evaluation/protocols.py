"""Protocols: what a benchmark consists of and how it is scored, of the paper's nine and of a user's own."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from jobs.specs.evaluation import BenchmarkChoice
from jobs.specs.mistakes import SpecError
from jobs.training.data_rows import DeclaredKind

PROTOCOLS_FILE = Path(__file__).parent / "benchmarks.yaml"


@dataclass(frozen=True, slots=True)
class HubDataSet:
    """A Hugging Face data set."""

    name: str
    split: str
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Protocol:
    """One benchmark. `samples_per_question` is n of Avg@n; with one sample that is Pass@1.

    Without `data_sources` every row counts, without `num_questions` as many as there are.
    """

    name: str
    title: str
    data_sources: tuple[str, ...]
    hub: HubDataSet | None
    num_questions: int | None
    samples_per_question: int
    answer_kind: DeclaredKind


@cache
def load_protocols() -> dict[str, Protocol]:
    """Return the protocols of the paper's benchmarks by name, in the order of its tables."""
    content: dict[str, dict[str, Any]] = yaml.safe_load(PROTOCOLS_FILE.read_text(encoding="utf-8"))
    return {name: _protocol(name, fields) for name, fields in content.items()}


def find_protocol(name: str) -> Protocol:
    """Return a protocol of the paper's by name.

    Raises:
        SpecError: There is none; the message lists those there are.
    """
    protocols = load_protocols()
    if name not in protocols:
        raise SpecError(
            f"expected some of {', '.join(protocols)}, got {name!r}; for data of your own name its file, "
            f"as in {name}=FILE.",
            "benchmarks",
        )
    return protocols[name]


def protocol_of(choice: BenchmarkChoice, where: str = "benchmarks") -> Protocol:
    """Return the protocol by which a benchmark is scored: the paper's, or for another name what the choice says.

    Raises:
        SpecError: Neither the paper's nor one with a source, or the paper's with a title or grading of one's own.
    """
    if choice.source is None or choice.name in load_protocols():
        for field in ("title", "answer_kind"):
            if getattr(choice, field) is not None:
                raise SpecError(
                    f"expected none, since {choice.name} is the paper's; choose another name for a benchmark of "
                    "your own.",
                    f"{where}.{choice.name}.{field}",
                )
        return find_protocol(choice.name)
    return Protocol(
        name=choice.name,
        title=choice.title or choice.name,
        data_sources=(),
        hub=None,
        num_questions=None,
        samples_per_question=choice.samples_per_question or 1,
        answer_kind=choice.answer_kind or "auto",
    )


def _protocol(name: str, fields: dict[str, Any]) -> Protocol:
    parts = fields | {"data_sources": tuple(fields["data_sources"]), "hub": HubDataSet(**fields["hub"])}
    return Protocol(name=name, **parts)
