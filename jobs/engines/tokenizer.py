"""The tokenizer of a model's files, on every engine."""

from typing import Any, cast

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from exgrpo_core.errors import EngineError, first_line

_PLAIN_TOKENIZERS = frozenset({"TokenizersBackend", "PreTrainedTokenizerFast"})
"""Tokenizers that follow their tokenizer.json exactly; for some model types AutoTokenizer adds tokens to them."""


def load_tokenizer(source: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model's files; code in them is never run.

    Raises:
        EngineError: They cannot be found or read.
    """
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    try:
        settings = get_tokenizer_config(source, revision=revision)
        is_plain = settings.get("tokenizer_class") in _PLAIN_TOKENIZERS
        loader = PreTrainedTokenizerFast if is_plain else AutoTokenizer
        return cast(PreTrainedTokenizerBase, loader.from_pretrained(source, **options))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the readers of tokenizers raise errors of any kind, a panic of Rust's too
        raise EngineError(f"model.source: the tokenizer of {source} cannot be read ({first_line(error)}).") from error
