"""Parts of several specifications: strict fields, benchmarks, parts of a reward; and their mistakes in sentences."""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from exgrpo_core.config import MAX_SEED, RewardKind
from exgrpo_core.errors import FieldError, InputError, Mistake, joined, shown
from exgrpo_core.methods.loading import allowed_location

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


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


AnySpec = TypeVar("AnySpec", bound=BaseModel)

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "invalid_key": "a text as the name",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "{min_length} or more characters",
    "string_pattern_mismatch": "lowercase letters, digits, dots and hyphens, with a letter or digit first",
    "too_short": "{min_length} or more entries",
    "path_type": "a path",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "dataclass_type": "a mapping of fields",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
"""What a value should have been, by pydantic's name of the error."""


_LIKELY = 0.7
"""Similarity of two names, in [0, 1], above which one counts as a misspelling of the other."""


class SpecError(FieldError):
    """A specification that cannot be run; its mistakes name the field, what was expected and what to do."""


def checked(model: type[AnySpec], content: object, origin: str) -> AnySpec:
    """Return the specification that `content` from `origin` (a file or form) holds.

    Raises:
        SpecError: One sentence a mistake, naming the field and what was expected.
    """
    try:
        try:
            spec = model.model_validate(content)
            json.dumps(spec.model_dump(), ensure_ascii=False, default=str).encode()  # half of a character is refused
            if not (booleans := [item for item in _strict_errors(model, content) if _is_boolean_for_number(item)]):
                return spec
            mistakes = _explain_all(model, booleans)
        except ValidationError as error:
            mistakes = _find_all(model, content, error)
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.end]
        raise SpecError(f"{origin}: holds {wrong!a}, which is half of a character; remove it.") from None
    raise SpecError(f"{origin}: {joined(mistakes)}", mistakes=mistakes)


def wrong_types(model: type[BaseModel], content: object) -> tuple[Mistake, ...]:
    """Return a mistake for each field that is missing or of another type, none for values that are out of range."""
    return _explain_all(model, (item for item in _strict_errors(model, content) if _is_wrong_type(item)))


def _strict_errors(model: type[BaseModel], content: object) -> "list[ErrorDetails]":
    """Return the errors of what the content holds, not of what it could be read as."""
    try:
        model.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        return error.errors()
    return []


def _is_boolean_for_number(item: "ErrorDetails") -> bool:
    return isinstance(item["input"], bool) and item["type"] in {"int_type", "float_type"}


def _is_wrong_type(item: "ErrorDetails") -> bool:
    kind = item["type"]
    is_choice = kind in {"literal_error", "enum"} and not isinstance(item.get("input"), str)
    return (
        is_choice
        or kind in {"missing", "json_invalid", "finite_number"}
        or kind.endswith(("_type", "_parsing", "_from_float"))
    )


def _find_all(model: type[BaseModel], content: object, error: ValidationError) -> tuple[Mistake, ...]:
    """Return the mistakes that pydantic found, and those of rules over several fields, which it skips after any other.

    Rules of a section with a wrong field wait until that is fixed.
    """
    mistakes = _explain_all(model, error.errors())
    wrong = [tuple(map(str, item["loc"])) for item in error.errors()]
    if not isinstance(content, Mapping) or () in wrong:
        return mistakes
    try:
        model.model_validate(_without(content, wrong))
    except ValidationError as other:
        rules = _explain_all(model, (item for item in other.errors() if item["type"] == "value_error"))
        sections = {path[0] for path in wrong}
        return (*mistakes, *(rule for rule in rules if not sections & {name.split(".")[0] for name in rule.fields}))
    return mistakes


def _without(content: Mapping[str, Any], paths: list[tuple[str, ...]]) -> dict[str, Any]:
    """Return `content` without the fields at `paths`, which then have their defaults."""
    here = {path[0] for path in paths if len(path) == 1}
    kept = {name: value for name, value in content.items() if name not in here}
    for name in {path[0] for path in paths} - here:
        inside = [path[1:] for path in paths if path[0] == name]
        if isinstance(kept.get(name), Mapping):
            kept[name] = _without(kept[name], inside)
        else:
            kept.pop(name, None)
    return kept


def _explain_all(model: type[BaseModel], items: "Iterable[ErrorDetails]") -> tuple[Mistake, ...]:
    return tuple(mistake for item in items for mistake in _explain(model, item))


def _explain(model: type[BaseModel], item: "ErrorDetails") -> list[Mistake]:
    """Return the mistakes of an error of pydantic: those that a validator names, else one on the field itself."""
    place = tuple(map(str, item["loc"]))
    error = item.get("ctx", {}).get("error")
    named = error.mistakes if isinstance(error, FieldError) else ()
    if any(mistake.fields for mistake in named):
        return [Mistake(each.text, *(".".join((*place, field)) for field in each.fields)) for each in named]
    expected = _EXPECTED.get(item["type"])
    if expected is not None:
        text = f"expected {expected.format_map(item.get('ctx', {}))}, got {shown(item.get('input'))}"
    elif item["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        text = f"there is no such field; {nearest_field([*_leaves(model)], '.'.join(place))}"
    elif item["type"] == "missing":
        text = "expected a value, got none"
    else:
        message = item["msg"].removeprefix("Value error, ")
        text = f"{message}, got {shown(item.get('input'))}" if place else message
    return [Mistake(text, *([".".join(place)] if place else []))]


def _leaves(model: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of a model's fields, in its sections those of their fields."""
    hints = get_type_hints(model)
    for name in _fields(model):
        sections = [kind for kind in (hints[name], *get_args(hints[name])) if _fields(kind)]
        for section in sections:
            yield from _leaves(section, f"{prefix}{name}.")
        if not sections:
            yield prefix + name


def _fields(kind: object) -> Mapping[str, object]:
    found: Mapping[str, object] = getattr(kind, "__dataclass_fields__", {})
    return kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else found


def nearest_field(fields: Sequence[str], key: str) -> str:
    """Return a hint at the field most similar to `key`; if none is similar, the nearest field of its section."""
    path = _most_like(key, fields)
    if _likeness(_last_name(key), _last_name(path)) >= _LIKELY:
        return f"did you mean {path}?"
    section = key.rpartition(".")[0]
    path = _most_like(key, [field for field in fields if field.rpartition(".")[0] == section] or fields)
    shows = ", and `exgrpo query presets --preset NAME --json` shows all fields" if "preset" in fields else ""
    return f"the nearest is {path}{shows}."


def _most_like(key: str, fields: Sequence[str]) -> str:
    name = _last_name(key)
    return max(fields, key=lambda field: _likeness(name, _last_name(field)) + _likeness(key, field))


def _last_name(path: str) -> str:
    return path.rpartition(".")[2]


def _likeness(left: str, right: str) -> float:
    return difflib.SequenceMatcher(None, left, right).ratio()
