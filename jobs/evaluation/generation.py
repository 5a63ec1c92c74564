"""Sampling answers: the interface of an evaluation's generator."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from exgrpo.jobs.training.templates import Message


@dataclass(frozen=True, slots=True)
class PromptedQuestion:
    """One question as a model gets it: a text to continue, or messages for the model's own chat template."""

    question_id: str
    prompt_text: str | None
    messages: tuple[Message, ...]
    temperature: float
    """Sampling temperature; one for all questions of a batch."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled answer."""

    text: str
    num_tokens: int
    is_truncated: bool
    log_prob: float | None = None
    """Sum over its tokens at the sampling temperature, in nats; None where the generator gives none."""


@dataclass(frozen=True, slots=True)
class SampledQuestion:
    """All answers to one question, and the seed that they were drawn with."""

    question_id: str
    seed: int
    samples: list[Sample]


class AnswerGenerator(Protocol):
    """Samples answers. Those of a question depend on seed and question, not on the other questions of the batch."""

    @property
    def num_at_once(self) -> int:
        """Answers that one batch should have; 0 leaves that to the specification."""
        ...

    def generate(
        self, batch: Sequence[PromptedQuestion], wanted: frozenset[str], num_samples: int, seed: int
    ) -> Iterator[SampledQuestion]:
        """Yield `num_samples` answers for each wanted question of the batch, in any order, as they come.

        Raises:
            TrainingError: It gives no answers; one sentence says why.
        """
        ...

    def close(self) -> None:
        """Free the model and close connections."""
        ...


def num_asked(question: PromptedQuestion, num_samples: int) -> int:
    """Return how many answers to ask a server or vLLM for: they refuse several greedy ones, which are all the same."""
    return 1 if question.temperature == 0 else num_samples


def repeat_greedy(samples: list[Sample], num_samples: int) -> list[Sample]:
    """Return as many samples as are graded, from those that `num_asked` asked for."""
    return samples * num_samples if len(samples) == 1 else samples


def derive_seed(seed: int, *parts: str) -> int:
    """Return a seed of 31 bits that follows from a seed and names."""
    content = "\x1f".join((str(seed), *parts))
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big") >> 1
