"""What the settings of a model show without loading it: its sizes, also by a table, and whether they name code."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from exgrpo.jobs.specs.base import LoraSpec
from exgrpo.jobs.specs.train import CHAINS_WARM_MODEL, ModelSpec, SpecError
from exgrpo.jobs.training.pretrained.sources import converted_folder, is_converted
from exgrpo_core.bounded_json import UnreadableFileError, read_json

TABLE = Path(__file__).parent / "model_shapes.yaml"
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
_SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
    "max_position_embeddings", "head_dim",
)  # fmt: skip
_MAX_SIZE = 1 << 30
_MAX_SETTINGS_BYTES = 1 << 26
_VOCABULARY_BLOCK = 64
"""vLLM pads the vocabulary to a multiple of it, and gives each GPU an equal part."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder with grouped attention and a gated feed-forward part."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    is_tied: bool
    context: int
    head_size: int | None = None
    """None is hidden / heads."""
    extended: str | None = None
    """The name of a copy with a longer context."""
    rope_border: int | None = None
    """Tokens above which longrope gives every token another rotary embedding; None without longrope."""
    has_dynamic_rope: bool = False
    """Whether rotary embeddings depend on the length above the context."""

    def limit_after(self, num_prompt_tokens: int) -> int:
        """Return the most tokens of a prompt and its response."""
        return self.context if self.rope_border is None or num_prompt_tokens > self.rope_border else self.rope_border

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention, feed-forward part and two norms."""
        size = self.head_size or self.hidden // self.heads
        attention = 2 * self.hidden * size * (self.heads + self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Parameters of one vocabulary matrix."""
        return self.vocabulary * self.hidden

    @property
    def largest_weight(self) -> int:
        """Parameters of the largest matrix."""
        return self.hidden * max(self.vocabulary, self.intermediate)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; biases are left out."""
        embeddings = self.embedding_parameters * (1 if self.is_tied else 2)
        return embeddings + self.layers * self.layer_parameters + self.hidden

    def adapter_parameters(self, lora: LoraSpec) -> int:
        """Parameters of low-rank adapters: for each target `rank` rows of its inputs and of its outputs."""
        size = self.head_size or self.hidden // self.heads
        queries, keys = self.heads * size, self.kv_heads * size
        sizes = {
            "q_proj": self.hidden + queries,
            "k_proj": self.hidden + keys,
            "v_proj": self.hidden + keys,
            "o_proj": queries + self.hidden,
            "gate_proj": self.hidden + self.intermediate,
            "up_proj": self.hidden + self.intermediate,
            "down_proj": self.intermediate + self.hidden,
        }
        return self.layers * lora.rank * sum(sizes[name] for name in lora.target_modules)

    def trained_parameters(self, model: ModelSpec) -> int:
        """Parameters that a run trains: all, or those of its adapters."""
        return self.parameters if model.lora is None else self.adapter_parameters(model.lora)

    def shares_heads(self, num_gpus: int) -> bool:
        """Whether so many GPUs get equal numbers of attention heads; those of keys and values may be copied."""
        shares_keys = self.kv_heads % num_gpus == 0 or num_gpus % self.kv_heads == 0
        return self.heads % num_gpus == 0 and shares_keys

    def splits(self, num_gpus: int) -> bool:
        """Whether vLLM can share one copy of the model among so many GPUs."""
        padded = -(-self.vocabulary // _VOCABULARY_BLOCK) * _VOCABULARY_BLOCK
        return self.shares_heads(num_gpus) and self.intermediate % num_gpus == 0 and padded % num_gpus == 0

    @property
    def cache_values_per_token(self) -> int:
        """Keys and values that one token adds to the cache."""
        return 2 * self.layers * self.kv_heads * (self.head_size or self.hidden // self.heads)


def model_shape(source: str, revision: str | None = None) -> ModelShape | None:
    """Return a model's shape: of a local folder, of the table, or of a model downloaded before; else None."""
    if not Path(source).is_dir() and source in _table():
        return _table()[source]
    path = model_file(source, CONFIG_FILE, revision)
    return None if path is None else _read_config(path)


def model_file(source: str, name: str, revision: str | None = None) -> Path | None:
    """Return a file of a model in a local folder or downloaded before, None if it is not on this machine."""
    folder = converted_folder(source) if is_converted(source) else Path(source)
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    if source == CHAINS_WARM_MODEL or is_converted(source):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(source, name, revision=revision)
    except HFValidationError:
        return None
    return Path(path) if isinstance(path, str) else None


def read_settings(source: str, name: str, revision: str | None = None) -> dict[str, Any]:
    """Return a settings file of a model, nothing if it is not on this machine or cannot be opened.

    Raises:
        UnreadableFileError: It is not JSON, has a field twice, or is no mapping; transformers would leave it out.
    """
    path = model_file(source, name, revision)
    try:
        return {} if path is None else read_json(path, _MAX_SETTINGS_BYTES)
    except UnreadableFileError as error:
        sentence = str(error).removesuffix(".")
        raise UnreadableFileError(f"{sentence}; put the model's own {name} in its place.") from None
    except OSError:
        return {}


def check_split(source: str, shape: ModelShape | None, num_gpus: int, field: str) -> None:
    """Refuse a number of GPUs over which vLLM cannot share a model, if its shape is known.

    Raises:
        SpecError: It cannot; the sentence names the nearest smaller number.
    """
    if shape is None or shape.splits(num_gpus):
        return
    fitting = next(size for size in range(num_gpus, 0, -1) if shape.splits(size))
    raise SpecError(
        f"vLLM cannot share {source}, with {shape.heads} attention heads and {shape.kv_heads} of keys and values, over "
        f"{num_gpus} GPUs; choose {fitting}.",
        field,
    )


def longrope_refusal(source: str, border: int, needed: int) -> str:
    """Return why sequences of `needed` tokens cannot be generated by a model with longrope."""
    return (
        f"{source} has longrope, which gives the tokens before it other rotary embeddings when a response crosses "
        f"{border:,} tokens, and a prompt with its response may have {needed:,} here; lower max_prompt_tokens and "
        f"max_response_tokens to {border:,} in all."
    )


def config_mistake(source: str, revision: str | None = None) -> str:
    """Return why the configuration of a model on this machine cannot be one, empty if it can or is elsewhere."""
    path = None if source in _table() and not Path(source).is_dir() else model_file(source, CONFIG_FILE, revision)
    return "" if path is None else _mistake(path)


@cache
def _table() -> dict[str, ModelShape]:
    content = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    rows = content["models"].items()
    return {name: ModelShape(**content["families"][row.pop("family")], **row) for name, row in rows}


def _read_config(path: Path) -> ModelShape | None:
    try:
        content = {name: value for name, value in read_json(path).items() if value is not None}
        return None if _odd_size(content) else _shape_of(content)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _mistake(path: Path) -> str:
    """Return why a configuration cannot be one of a model, empty if it can."""
    try:
        return _odd_size(read_json(path))
    except OSError as error:
        return f"cannot be read ({error.strerror})."
    except UnreadableFileError as error:
        return str(error).removeprefix(f"{path}: ")


def _odd_size(content: Mapping[str, Any]) -> str:
    for name in _SIZES:
        value = content.get(name)
        if value is not None and (not isinstance(value, int) or not 1 <= value <= _MAX_SIZE):
            return f"{name}: expected a whole number from 1 to {_MAX_SIZE:,}, got {str(value)[:40]}; use another copy."
    return ""


def _shape_of(whole: Mapping[str, Any]) -> ModelShape:
    """Return the sizes in a configuration; those of a model that also sees images are in its `text_config`."""
    config = {**whole, **(whole.get("text_config") or {})}
    ropes = _ropes(config)
    border = config.get("original_max_position_embeddings") or ropes.get("longrope", {}).get(
        "original_max_position_embeddings", config["max_position_embeddings"]
    )
    return ModelShape(
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
        vocabulary=config["vocab_size"],
        is_tied=bool(config.get("tie_word_embeddings", True)),
        context=config["max_position_embeddings"],
        head_size=config.get("head_dim"),
        rope_border=border if "longrope" in ropes else None,
        has_dynamic_rope="dynamic" in ropes,
    )


def _ropes(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the scalings of rotary embeddings by name; some models have one a kind of layer."""
    whole = config.get("rope_parameters") or config.get("rope_scaling") or {}
    parts = [part for part in (whole, *whole.values()) if isinstance(part, Mapping)]
    named = {str(part.get("rope_type") or part.get("type")): part for part in parts}
    return named | ({"longrope": named["su"]} if "su" in named else {})


CONFIG_FILES = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
"""Files in which transformers and vLLM look for the names of code."""
SETTINGS_FILES = (*CONFIG_FILES, "generation_config.json")
"""All files of settings, each a mapping in JSON."""
_AUTO_MAP = "auto_map"
_ATTENTION = "attn_implementation"


def named_code(content: object) -> str | None:
    """Return the field that names code, None if no field of the configuration does.

    `auto_map` names Python files of a model's folder. An attention with a slash is a repository of compiled kernels,
    which transformers would fetch and run.
    """
    rest = [content]
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            rest += item
        if not isinstance(item, dict):
            continue
        for name, value in item.items():
            if name == _AUTO_MAP or (str(name).endswith(_ATTENTION) and _has_slash(value)):
                return str(name)
            rest.append(value)
    return None


def _has_slash(value: object) -> bool:
    """Whether a text has a slash, or one in a mapping of texts, as a model of several parts has it."""
    texts = value.values() if isinstance(value, dict) else [value]
    return any(isinstance(text, str) and "/" in text for text in texts)
