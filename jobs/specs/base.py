"""Parts of several specifications: strict fields, bounded numbers, addresses, benchmarks, parts of a reward."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from exgrpo_core.config import MAX_SEED, RewardKind
from exgrpo_core.errors import InputError, Mistake
from exgrpo_core.methods.loading import allowed_location

Positive = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
"""Seed of random numbers."""


def numpy_seed(seed: int) -> int:
    """Return the seed for verl and vLLM, which seed numpy with it: below 2**32, with room for verl to add a rank."""
    return seed % 2**31


def _check_server_address(address: str) -> str:
    try:
        parts = urlsplit(address)
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("expected an http or https address such as http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("expected no user, password, query or fragment; set the key in the environment")
    return address.rstrip("/")


ServerAddress = Annotated[str, AfterValidator(_check_server_address)]
"""Address of a model's server; `exgrpo.jobs.machine.model_server` checks where it is when it is used."""


class Spec(BaseModel):
    """Base of all specifications: unknown fields and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


_FILE_FIELDS = frozenset({"source", "file", "external_experience", "benchmarks"})


def map_files(content: Any, change: Callable[[str], str], field: str = "") -> Any:  # noqa: ANN401 - any part of JSON
    """Return the content of a specification with each text that may name a file changed."""
    if isinstance(content, str):
        return change(content) if field in _FILE_FIELDS else content
    if isinstance(content, list):
        return [map_files(item, change) for item in content]
    if isinstance(content, dict):
        # A benchmark may be its source alone.
        are_sources = field == "benchmarks"
        return {
            name: map_files(value, change, field if are_sources and isinstance(value, str) else name)
            for name, value in content.items()
        }
    return content


AnswerKind = Literal["math", "choice"]
"""How an answer is graded: as mathematics, or as a choice's label."""
DeclaredKind = Literal["auto", AnswerKind]
TemplateChoice = Literal["paper", "paper_llama_base", "compact", "none", "chat"]


class BenchmarkFields(Spec):
    """The fields of a benchmark apart from its name."""

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
    answer_kind: DeclaredKind | None = None
    """How data of one's own is graded; None takes what a run's `data` says, and `auto`, as for models of no run, choice
    where rows have options, else math."""
    index_from: Literal[0, 1] | None = None
    """From which number gold answers count their options; None reads it off the file where that can be told."""


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


LoraModule = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class LoraSpec(Spec):
    """Low-rank adapters (LoRA): they alone are trained; the model's own weights stay as they are."""

    rank: Positive = 16
    """Rank of each adapter."""
    alpha: Positive = 32
    """An adapter's product is multiplied by alpha / rank."""
    target_modules: tuple[LoraModule, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), min_length=1
    )
    """Projections of each layer that get an adapter."""


class OptimSpec(Spec):
    """AdamW."""

    learning_rate: float = Field(1e-4, gt=0)
    """Step size after warm-up; the paper's runs use 1e-6 on models of 1.5B and more."""
    weight_decay: float = Field(0.0, ge=0)
    """An optimizer step removes this share of each weight, times the learning rate."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of the running mean of the gradient."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """Decay of the running mean of the squared gradient."""
    max_gradient_norm: float = Field(1.0, gt=0)
    """Gradients with a larger norm are scaled down to it."""
    warmup_steps: int = Field(0, ge=0)
    """Optimizer steps over which the learning rate rises from 0 to its value."""
    non_finite: Literal["stop", "skip"] = "stop"
    """What happens if a loss or gradient is not finite. `skip` leaves out the mini-batch and counts it."""


class SftSpec(Spec):
    """Supervised fine-tuning on demonstrations instead of reinforcement: one optimizer step per batch of them.

    `algorithm.batch_size` is the batch, in demonstrations; `algorithm.max_prompt_tokens` and `max_response_tokens`
    bound them. After `optim.warmup_steps` the learning rate falls to 0 along a cosine.
    """

    response_column: str = Field("target", min_length=1)
    """Column of `data.source` with each question's demonstration, a text or messages; built-in tasks need none."""
    num_facts: int = Field(0, ge=0)
    """On `word_problems`: how many facts such as `29 - 5 = 24` are mixed with the demonstrations."""


ANSWER, FORMAT, RANDOM = "answer", "format", "random"
ANSWER_ALONE = {ANSWER: 1.0}
PARTS = {
    ANSWER: "the grader's reward of the answer",
    FORMAT: "1 for any answer in a box, correct or wrong",
    RANDOM: "1 for half of the responses, whatever they are",
}
"""The built-in parts and what they reward; format and random are controls."""
ENTRY_POINTS = "exgrpo.rewards"
"""Group of the entry points of other packages; an entry point's name is the part's."""
MAX_CODE_PARTS = 3
"""Parts by code from outside the workbench, each with a curve of its own."""


def code_parts(rewards: Iterable[str]) -> dict[str, str]:
    """Return `module:function` of each part that is not built in, by its name.

    Raises:
        InputError: There is none, or it is code that this machine does not allow.
    """
    return {name: allowed_location(name, PARTS, ENTRY_POINTS) for name in rewards if name not in PARTS}


def find_reward_mistakes(rewards: Mapping[str, float], kind: RewardKind) -> Iterator[Mistake]:
    """Yield a sentence on each thing that is wrong with a reward's parts and their weights."""
    if rewards == ANSWER_ALONE:
        return
    try:
        num_code_parts = len(code_parts(rewards))
    except InputError as error:
        yield Mistake(str(error), "data.rewards")
        return
    if not rewards or num_code_parts > MAX_CODE_PARTS:
        text = f"expected some parts, at most {MAX_CODE_PARTS} of them by code, got {len(rewards)}."
        yield Mistake(text, "data.rewards")
    if kind is RewardKind.BINARY and (num_code_parts or list(rewards.values()) != [1.0]):
        text = "expected one built-in part of weight 1; others need algorithm.reward_kind continuous."
        yield Mistake(text, "data.rewards")
