"""The declared protocols: what a benchmark consists of and how it is scored."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from jobs.specs.train import SpecError

PROTOCOLS_FILE = Path(__file__).parent / "benchmarks.yaml"


@dataclass(frozen=True, slots=True)
class HubDataSet:
    """A Hugging Face data set."""

    name: str
    split: str
    config: str | None = None


@dataclass(frozen=True, slots=True)
class Protocol:
    """One benchmark. `samples_per_question` is n of Avg@n; with one sample that is Pass@1."""

    name: str
    title: str
    data_sources: tuple[str, ...]
    hub: HubDataSet
    num_questions: int
    samples_per_question: int
    answer_kind: Literal["math", "choice"]


@cache
def load_protocols() -> dict[str, Protocol]:
    """Return all protocols by name, in the order of the paper's tables."""
    content: dict[str, dict[str, Any]] = yaml.safe_load(PROTOCOLS_FILE.read_text(encoding="utf-8"))
    return {name: _protocol(name, fields) for name, fields in content.items()}


def find_protocol(name: str) -> Protocol:
    """Return a protocol by name.

    Raises:
        SpecError: There is none; the message lists those there are.
    """
    protocols = load_protocols()
    if name not in protocols:
        raise SpecError(f"benchmarks: expected some of {', '.join(protocols)}, got {name!r}.")
    return protocols[name]


def _protocol(name: str, fields: dict[str, Any]) -> Protocol:
    parts = fields | {"data_sources": tuple(fields["data_sources"]), "hub": HubDataSet(**fields["hub"])}
    return Protocol(name=name, **parts)
