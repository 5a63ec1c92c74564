"""One benchmark: where its questions come from and how they are asked, in an evaluation or while a run trains."""

from typing import Literal

from pydantic import Field, ModelWrapValidatorHandler, SerializerFunctionWrapHandler, model_serializer, model_validator

from jobs.specs.base import Positive, Spec

TemplateChoice = Literal["paper", "paper_llama_base", "compact", "none", "chat"]


class BenchmarkFields(Spec):
    """The fields of a benchmark beside its name."""

    source: str | None = None
    """Parquet or JSON-lines file, or a Hugging Face data set name; None uses the data set of the paper's protocol."""
    num_questions: Positive | None = None
    """Only the first questions; None takes all, and of the paper's benchmarks checks their number."""
    samples_per_question: Positive | None = None
    """n of Avg@n; None takes the paper's, 1 for data of one's own, and during training that of `validation`."""
    title: str | None = Field(None, min_length=1, max_length=80)
    """Shown name of data of one's own; None takes `name`."""
    template: TemplateChoice | None = None
    """Prompt template; None takes the evaluation's, and during training that of `data`."""
    temperature: float | None = Field(None, ge=0)
    """Sampling temperature; None takes the evaluation's, and during training that of `validation`."""
    answer_kind: Literal["auto", "math", "choice"] | None = None
    """How data of one's own is graded; None and `auto` take choice where rows have options, else math."""


class ValidationBenchmark(BenchmarkFields):
    """A benchmark that a run is scored on while it trains; written as its source alone where it has no other field."""

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, content: object, read: ModelWrapValidatorHandler["ValidationBenchmark"]) -> "ValidationBenchmark":
        return read({"source": content or None} if content is None or isinstance(content, str) else content)

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> object:
        given = {name: value for name, value in write(self).items() if value is not None}
        return self.source if set(given) <= {"source"} else given
