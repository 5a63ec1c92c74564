"""The tokenizer of a model's files, on every engine."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from exgrpo_core.errors import EngineError, first_line


def response_texts(
    tokenizer: PreTrainedTokenizerBase, responses: Sequence[Sequence[int]], end_token_ids: Iterable[int] = ()
) -> list[str]:
    """Return what responses say: special tokens of the answer, such as think tags, stay; end and padding go.

    A special token that comes last has ended its response, whether or not the tokenizer names it as an end token.
    """
    left_out = {*end_token_ids, tokenizer.eos_token_id, tokenizer.pad_token_id}
    special = set(tokenizer.all_special_ids)
    ended = [response[:-1] if response and response[-1] in special else response for response in responses]
    kept = [[token for token in response if token not in left_out] for response in ended]
    # Some tokenizers' settings would take out spaces: "1 , 2" is not what was sampled as "1, 2".
    texts: list[str] = tokenizer.batch_decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return texts


def unknown_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the token for texts that a tokenizer does not know; None where it knows all, or gives it another meaning.

    GPT-2's, which knows all bytes, is its end token too.
    """
    unknown = tokenizer.unk_token_id
    if unknown is None:  # tokenizer.json may name one of its own
        model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
        name = getattr(model, "unk_token", None)
        unknown = None if name is None else tokenizer.convert_tokens_to_ids(name)
    return None if unknown in {tokenizer.eos_token_id, tokenizer.bos_token_id} else cast(int | None, unknown)


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
        tokenizer = cast(PreTrainedTokenizerBase, loader.from_pretrained(source, **options))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the readers of tokenizers raise errors of any kind, a panic of Rust's too
        raise EngineError(
            f"the tokenizer of {source} cannot be read ({first_line(error)}); choose another model.",
            "model.source",
        ) from error
    # Without any file transformers makes one that has special tokens only.
    if len(tokenizer) <= len({*tokenizer.all_special_tokens}):
        raise EngineError(
            f"{source} has no tokenizer; put its files, such as tokenizer.json, into the folder.", "model.source"
        )
    return tokenizer
