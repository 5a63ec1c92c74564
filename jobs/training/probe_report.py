"""What a look at a model before a run found, and what to do where it is bad; loads no engine."""

from dataclasses import asdict, dataclass
from typing import Any, Self

LEAST_FORMAT_RATE = 0.5
MOST_TRUNCATED = 0.25
MOST_ENTROPY = 3.0
"""Nats a token; a model that continues a text it cannot read has more."""
LEAST_ENTROPY = 0.05


@dataclass(frozen=True, slots=True)
class ProbedAnswer:
    """One sampled answer and its verdict."""

    text: str
    gold_answer: str
    verdict: str


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """Rates in [0, 1] over all sampled answers."""

    prompt: str
    """The first question as the model got it."""
    num_questions: int
    num_samples: int
    """Answers a question."""
    pass_rate: float
    """Share of correct answers: Pass@1 at the run's temperature."""
    format_rate: float
    """Share of responses in which the grader finds an answer."""
    truncation_rate: float
    """Share of responses that do not end within the longest allowed."""
    mean_entropy: float
    """Nats a token, the mean over answers."""
    entropy_deviation: float
    """Standard deviation between the answers' means."""
    mean_tokens: float
    """Length of a response."""
    seconds: float
    answers: tuple[ProbedAnswer, ...]
    """The first answer to each question."""

    def to_json(self) -> dict[str, Any]:
        """Return the report with its advice, as JSON can hold it."""
        return asdict(self) | {"advice": self.advice()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Return the report back."""
        fields = {key: value for key, value in content.items() if key != "advice"}
        return cls(**fields | {"answers": tuple(ProbedAnswer(**answer) for answer in content["answers"])})

    def advice(self) -> list[str]:
        """Return one sentence for each bad figure: what it is and what to do."""
        rules = [
            (
                self.format_rate < LEAST_FORMAT_RATE,
                f"The grader finds an answer in {self.format_rate:.0%} of the responses: see whether the prompt asks "
                "for a \\boxed{} and is in the model's template, or fine-tune on demonstrations first (sft).",
            ),
            (
                self.truncation_rate > MOST_TRUNCATED,
                f"{self.truncation_rate:.0%} of the responses do not end: raise algorithm.max_response_tokens, or "
                "fine-tune on demonstrations that end.",
            ),
            (
                self.mean_entropy > MOST_ENTROPY,
                f"An entropy of {self.mean_entropy:.1f} nats is that of noise: the model does not know this kind of "
                "prompt; try another data.template.",
            ),
            (
                self.mean_entropy < LEAST_ENTROPY,
                f"An entropy of {self.mean_entropy:.2f} nats leaves hardly a difference between samples: raise "
                "algorithm.temperature.",
            ),
            (
                self.pass_rate == 0.0,
                "No response is correct, and questions without a correct response teach nothing. Fine-tune on "
                "demonstrations first (sft), or choose easier questions.",
            ),
            (
                self.pass_rate == 1.0,
                "Every answer is correct, and questions without a wrong answer teach nothing: choose harder questions.",
            ),
        ]
        return [sentence for is_bad, sentence in rules if is_bad]

    def summary(self) -> str:
        """Return the figures in one line."""
        questions = "1 question" if self.num_questions == 1 else f"{self.num_questions:,} questions"
        return (
            f"pass rate {self.pass_rate:.2f}, format rate {self.format_rate:.2f}, truncation rate "
            f"{self.truncation_rate:.2f}, mean entropy {self.mean_entropy:.2f} nats, {self.mean_tokens:.0f} tokens a "
            f"response ({questions} x {self.num_samples} responses, {self.seconds:.0f} s)"
        )
