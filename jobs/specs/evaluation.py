"""Specification of an evaluation: a model, benchmarks, sampling of answers and the generator."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from exgrpo.jobs.specs.base import BenchmarkFields, Positive, Seed, ServerAddress, Spec, SpecError, TemplateChoice
from exgrpo.jobs.specs.train import RunName

API_KEY_VARIABLE = "EXGRPO_API_KEY"
"""Environment variable with the key of a model server; it is never part of a specification."""

BENCHMARK_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")


def _check_benchmark_name(name: str) -> str:
    if BENCHMARK_NAME.fullmatch(name) is None:
        raise ValueError("expected lower-case letters, digits and _, at most 32")
    return name


BenchmarkName = Annotated[str, AfterValidator(_check_benchmark_name)]


class EvalModelSpec(Spec):
    """The model to score."""

    source: str = Field(min_length=1)
    """Folder or hub name of a causal language model."""
    revision: str | None = None
    """Hub revision; None is the newest."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the embedded engine runs; `auto` takes a GPU if there is one."""
    run_id: str | None = None
    """The run whose checkpoint this is."""
    step: int | None = Field(None, ge=0)
    """The checkpoint's step in that run."""
    chosen_as: Literal["last", "best"] | None = None
    """Whether the checkpoint was asked for as the last, or as that of the best held-out score; None by its step."""


class BenchmarkChoice(BenchmarkFields):
    """One benchmark to run, and the source of its questions: the paper's, or a user's file."""

    name: BenchmarkName
    """One of `jobs/evaluation/benchmarks.yaml`, or any other name for data of one's own."""


class ServerSpec(Spec):
    """A server that speaks OpenAI's completions interface, such as `vllm serve`."""

    address: ServerAddress
    """Address up to and with `/v1`; no user, password or query in it."""
    model: str = Field(min_length=1)
    """Name under which the server knows the model."""
    num_parallel: Positive = 16
    """Parallel requests."""
    timeout_seconds: float = Field(600.0, gt=0)
    """Longest wait for one answer."""
    num_tries: Positive = 4
    """Tries of one request before the evaluation fails."""


class EvalSpec(Spec):
    """One evaluation of one model on some benchmarks."""

    kind: Literal["eval"] = "eval"
    name: RunName = "evaluation"
    """Name on pages."""
    generator: Literal["embedded", "server", "vllm"] = "embedded"
    """The generator: this project's engine, a running server, or vLLM inside the evaluation's process."""
    model: EvalModelSpec
    benchmarks: tuple[BenchmarkChoice, ...] = Field(min_length=1)
    """What the model is scored on."""
    template: TemplateChoice = "paper"
    """Prompt template."""
    temperature: float = Field(0.6, ge=0)
    """Sampling temperature; 0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Share of probability that is sampled from."""
    max_response_tokens: Positive = 8192
    """Longest answer, in tokens."""
    seed: Seed = 0
    """Every sample's seed follows from this one, the question and the sample's number."""
    batch_responses: Positive = 64
    """Answers generated, graded and written together, whole questions; a crash loses at most these."""
    num_graders: Positive = 2
    """Grading processes."""
    seconds_per_answer: float = Field(5.0, gt=0)
    """Longest grading of one answer."""
    reward_parts: tuple[str, ...] = ()
    """Parts of a training reward, as in `data.rewards`; their means over the responses are shown with the scores."""
    server: ServerSpec | None = None
    """The server, for `generator: server`."""
    num_gpus: Positive = 1
    """GPUs of `generator: vllm`, which share one copy of the model."""
    context_tokens: Positive | None = None
    """Longest prompt with answer of `generator: vllm`, for which it keeps memory; None is the model's context."""
    waits_for: str | None = None
    """Id of a training run that has to finish before this evaluation starts."""
    tags: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_together(self) -> "EvalSpec":
        if (self.generator == "server") != (self.server is not None):
            raise SpecError("expected one exactly when generator is server.", "server")
        if self.generator == "embedded" and self.top_p != 1.0:
            raise SpecError("expected 1.0, since the embedded engine samples from the whole distribution.", "top_p")
        if self.generator != "vllm" and (self.num_gpus > 1 or self.context_tokens is not None):
            raise SpecError("expected none unless generator is vllm.", "num_gpus", "context_tokens")
        names = [choice.name for choice in self.benchmarks]
        if len(set(names)) < len(names):
            raise SpecError("expected each one once.", "benchmarks")
        return self
