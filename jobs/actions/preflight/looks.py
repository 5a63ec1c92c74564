"""What a model's files and this machine show before a run, looked at once for all checks; loads no training library."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from exgrpo.jobs.machine.hardware import GB, Gpu, list_gpus
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.base import SpecError
from exgrpo.jobs.specs.train import CHAINS_SOURCE, CHAINS_WARM_MODEL, TrainSpec
from exgrpo.jobs.training.pretrained.chat_templates import render_conversation
from exgrpo.jobs.training.pretrained.model_shapes import (
    CONFIG_FILE,
    SETTINGS_FILES,
    TOKENIZER_FILE,
    ModelShape,
    config_mistake,
    longrope_refusal,
    model_file,
    model_shape,
    read_settings,
)
from exgrpo.jobs.training.pretrained.sources import PACKAGE_PREFIX, cache_directory, find_package
from exgrpo.jobs.training.templates import Message
from exgrpo_core.bounded_json import UnreadableFileError, parse_json, read_json, read_plain
from exgrpo_core.durable_files import write_whole
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
    """Yield that nothing is known of a model of the hub that was not downloaded yet.

    Raises:
        SpecError: The model knows the task `chains` only, and the run has other questions.
    """
    if look.spec.model.source == CHAINS_WARM_MODEL and look.spec.data.source != CHAINS_SOURCE:
        text = "expected a folder, GGUF file, hub name or pip:PACKAGE: chains-warm knows only the letters of chains."
        raise SpecError(text, "model.source")
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


_PROGRAM = "exgrpo.jobs.training.engines.embedded.first_look"
_SECONDS = 300.0
_BYTES_PER_WEIGHT = 4.5
"""Float32 as it is loaded, and some room."""


class FirstLook(NamedTuple):
    """What was found, in one sentence; a model that is not good cannot be trained."""

    is_good: bool
    sentence: str


def look_folder(spec: TrainSpec) -> Path | None:
    """Return the folder of a specification's model, if all of it is on this machine, whose engine is to train it."""
    path = model_file(spec.model.source, CONFIG_FILE, spec.model.revision)
    if spec.engine != "embedded" or path is None:
        return None
    is_of_hub = not Path(spec.model.source).exists() and find_package(spec.model.source) is None
    return None if is_of_hub and not _is_whole(path.parent) else path.parent


def _is_whole(folder: Path) -> bool:
    """Return whether all weights of a model of the hub were downloaded."""
    index = folder / "model.safetensors.index.json"
    try:
        names = set(read_json(index)["weight_map"].values()) if index.is_file() else {"model.safetensors"}
    except (OSError, UnreadableFileError, KeyError, TypeError, AttributeError):
        return False
    return all((folder / str(name)).is_file() for name in names)


@needs(Role.OPERATOR)
def first_look(spec: TrainSpec) -> FirstLook | None:
    """Return what the look found, of minutes for large models; None of a model elsewhere, or for verl."""
    remembered, folder = remembered_look(spec), look_folder(spec)
    if remembered is not None or folder is None:
        return remembered
    shape = model_shape(spec.model.source, spec.model.revision)
    num_bytes = 0 if shape is None else int(_BYTES_PER_WEIGHT * shape.parameters)
    is_large = num_bytes > psutil.virtual_memory().available
    command = [sys.executable, "-P", "-m", _PROGRAM, str(folder), *(["files"] if is_large else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except subprocess.SubprocessError as error:
        return FirstLook(True, f"{folder}: could not be looked at ({error}).")
    found = done.stdout.splitlines()[-1]
    if is_large:
        return _look(spec, {"bytes": num_bytes} | parse_json(found))
    look = _look(spec, parse_json(found))
    if look.is_good:  # another version of a package, or more memory, may fix what is not
        path = _path_of(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, found.encode())
    return look


def remembered_look(spec: TrainSpec) -> FirstLook | None:
    """Return what an earlier look at the same files found, at once; None where there was none, or it was not good."""
    folder = look_folder(spec)
    if folder is None:
        return None
    try:
        look = _look(spec, read_json(_path_of(folder)))
    except (OSError, UnreadableFileError):
        return None
    return look if look.is_good else None


def _look(spec: TrainSpec, found: dict[str, Any]) -> FirstLook:
    if "error" in found:
        return FirstLook(False, str(found["error"]))
    if "bytes" in found:
        why = f"they need about {found['bytes'] / GB:.0f} GB of memory, and are looked at when the run starts"
        return FirstLook(True, f"{spec.model.source}: architecture and files looked at, not the weights: {why}.")
    gap = f"sampled and scored log-probs differ by {found['gap']:.2g} nats in the mean"
    return FirstLook(True, f"{spec.model.source}: looked at; {gap}.")


def _path_of(folder: Path) -> Path:
    """Return where a look is remembered, under digits that change with the folder's files."""
    states = ((path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file())
    files = [(name, state.st_size, state.st_mtime_ns) for name, state in states]
    digits = hashlib.sha256(repr((str(folder.resolve()), files)).encode()).hexdigest()[:16]
    return cache_directory() / "first_looks" / f"{digits}.json"
