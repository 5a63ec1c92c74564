"""What a model's files and this machine show before a run, looked at once for all checks; loads no training library."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exgrpo.jobs.machine.hardware import Gpu, list_gpus
from exgrpo.jobs.specs.mistakes import SpecError
from exgrpo.jobs.specs.model_code import SETTINGS_FILES
from exgrpo.jobs.specs.train import CHAINS_WARM_MODEL, TrainSpec
from exgrpo.jobs.training.pretrained.chat_templates import render_conversation
from exgrpo.jobs.training.pretrained.model_shapes import (
    CONFIG_FILE,
    TOKENIZER_FILE,
    ModelShape,
    config_mistake,
    longrope_refusal,
    model_file,
    model_shape,
    read_settings,
)
from exgrpo.jobs.training.pretrained.sources import PACKAGE_PREFIX
from exgrpo.jobs.training.templates import Message
from exgrpo_core.bounded_json import UnreadableFileError, read_plain
from exgrpo_core.errors import first_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # type: ignore[import-untyped]

TEMPLATE_FILE = "chat_template.jinja"
_TOKENIZER_SETTINGS = "tokenizer_config.json"
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


def read_chat_template(source: str, revision: str | None = None) -> str | None:
    """Return the chat template of a model in a folder or downloaded before; None if it has none that is read."""
    path = model_file(source, TEMPLATE_FILE, revision)
    if path is not None:
        try:
            return read_plain(path).decode(errors="replace")
        except (OSError, UnreadableFileError):
            return None
    template = _tokenizer_settings(source, revision).get("chat_template")
    if isinstance(template, list):
        named = [item for item in template if isinstance(item, dict)]
        template = next((item.get("template") for item in named if item.get("name") == "default"), None)
    return template if isinstance(template, str) else None


@dataclass(frozen=True, slots=True)
class ModelLook:
    """What the files of a model on this machine show, without loading it."""

    source: str
    revision: str | None
    shape: ModelShape | None
    """None where it is not known."""
    config_mistake: str
    """Why its configuration cannot be one of a model."""
    has_config: bool
    tokenizer: Path | None
    has_tokenizer_settings: bool
    chat_template: str | None
    """None if it has none, or none that is on this machine."""

    @property
    def lacks_chat_template(self) -> bool:
        """Whether its tokenizer is on this machine and has no chat template."""
        return self.has_tokenizer_settings and self.chat_template is None


def look_at_model(source: str, revision: str | None = None) -> ModelLook:
    """Return what a model's files show."""
    return ModelLook(
        source=source,
        revision=revision,
        shape=model_shape(source, revision),
        config_mistake=config_mistake(source, revision),
        has_config=model_file(source, CONFIG_FILE, revision) is not None,
        tokenizer=model_file(source, TOKENIZER_FILE, revision),
        has_tokenizer_settings=model_file(source, _TOKENIZER_SETTINGS, revision) is not None,
        chat_template=read_chat_template(source, revision),
    )


@dataclass(frozen=True, slots=True)
class Look:
    """A training run's specification with what is known of its model and this machine: all that a check reads."""

    spec: TrainSpec
    """With names resolved: the model by its folder, files by their paths."""
    model: ModelLook
    gpus: Sequence[Gpu]


def look_at(spec: TrainSpec) -> Look:
    """Return what is known before a run of a resolved specification."""
    return Look(spec, look_at_model(spec.model.source, spec.model.revision), list_gpus())


def lacks_model(look: Look) -> bool:
    """Whether the run has to download its model, so that nothing of it is known before."""
    spec, source = look.spec, look.spec.model.source
    is_awaited = spec.waits_for is not None and source.startswith(f"{spec.waits_for}@")
    is_here = look.model.has_config or source == CHAINS_WARM_MODEL or Path(source).exists()
    return not (is_awaited or is_here or source.startswith(PACKAGE_PREFIX))


def check_origin(look: Look) -> Iterator[str]:
    """Yield that nothing is known of a model of the hub that was not downloaded yet."""
    if lacks_model(look):
        yield (
            f"model.source: {look.spec.model.source} is not on this machine, so it is not checked. The run downloads "
            "it from the Hugging Face hub when it starts, and fails if the hub has no model of this name."
        )


def check_model_files(model: ModelLook) -> None:
    """Refuse a model whose configuration cannot be one of a model.

    Raises:
        SpecError: A file of its settings is damaged, or a size in it is odd.
    """
    if model.config_mistake:
        raise SpecError(f"{CONFIG_FILE} of {model.source}: {model.config_mistake}", "model.source")
    check_settings("model.source", model.source, model.revision)


def check_settings(field: str, source: str, revision: str | None = None) -> None:
    """Refuse a model on this machine that has a settings file which is not a mapping in JSON.

    Raises:
        SpecError: It is one; the sentence names the file.
    """
    try:
        for name in SETTINGS_FILES:
            read_settings(source, name, revision)
    except UnreadableFileError as error:
        raise SpecError(str(error), field) from None


def check_context(look: Look) -> None:
    """Refuse a model whose context is known and too short.

    Raises:
        SpecError: The longest prompt with the longest response does not fit, or a size in its configuration is odd.
    """
    spec, model, shape = look.spec, look.model, look.model.shape
    check_model_files(model)
    if shape is None or model.source == CHAINS_WARM_MODEL:
        return
    if shape.rope_border is not None and shape.rope_border < spec.sequence_tokens:
        raise SpecError(longrope_refusal(model.source, shape.rope_border, spec.sequence_tokens), "model.source")
    if shape.has_dynamic_rope and spec.engine == "verl":
        raise SpecError(
            f"{model.source} has dynamic rope scaling, which vLLM applies at every length and the trainer only above "
            "the model's context; choose the embedded engine or another model.",
            "model.source",
        )
    if shape.context >= spec.sequence_tokens:
        return
    advice = (
        f"use {shape.extended}, whose context was extended" if shape.extended else "choose a model with a longer one"
    )
    raise SpecError(
        f"{model.source} has a context of {shape.context:,} tokens, but the longest prompt with the "
        f"longest response is {spec.sequence_tokens:,}; {advice}, or lower algorithm.max_response_tokens.",
        "model.source",
    )


def check_chat_templates(look: Look) -> None:
    """Refuse a model without a chat template where one is asked for and its tokenizer is on this machine.

    Raises:
        SpecError: It has none; the sentence begins with the fields that ask for one.
    """
    if look.model.lacks_chat_template and (fields := tuple(_chat_fields(look.spec))):
        raise lack_of_chat_template(*fields)


def lack_of_chat_template(*fields: str) -> SpecError:
    """Return the refusal of a model that has no chat template."""
    return SpecError("expected another template than chat, since the model has no chat template.", *fields)


def _chat_fields(spec: TrainSpec) -> Iterator[str]:
    if spec.data.template == "chat":
        yield "data.template"
    for name, benchmark in spec.validation.benchmarks.items():
        if benchmark.template == "chat":
            yield f"validation.benchmarks.{name}.template"


def render_chat_prompts(
    source: str, revision: str | None, template: str, conversations: Sequence[Sequence[Message]]
) -> list[str]:
    """Return each conversation in the model's chat template, with the beginning of the assistant's turn.

    Raises:
        ChatTemplateError: The template is no template, or refuses a conversation.
    """
    settings = _tokenizer_settings(source, revision)
    tokens = {name: _token_text(settings.get(name)) for name in _TOKENS}
    return [render_conversation(template, tokens, messages) for messages in conversations]


def _tokenizer_settings(source: str, revision: str | None) -> dict[str, object]:
    try:
        return read_settings(source, _TOKENIZER_SETTINGS, revision)
    except UnreadableFileError:  # `check_settings` names it
        return {}


def _token_text(token: object) -> str | None:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def read_tokenizer(path: Path) -> "Tokenizer":
    """Return the tokenizer of a file.

    Raises:
        UnreadableFileError: The file is damaged.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the reader raises bare exceptions, and for some files a panic of Rust's
        raise UnreadableFileError(f"{path}: is no tokenizer ({first_line(error)}); use another copy.") from error
