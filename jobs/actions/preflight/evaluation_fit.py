"""Checks of an evaluation before it is queued: prompts and answers fit into the model's context, names are known.

They refuse what this machine can tell; a name is asked on the Hugging Face hub.
"""

import os
from collections.abc import Sequence
from typing import Literal

from jobs.actions.preflight.chat_template import read_tokenizer
from jobs.specs.evaluation import EvalSpec
from jobs.specs.train import SpecError
from jobs.training.pretrained.model_shapes import TOKENIZER_FILE, check_split, model_file, model_shape
from jobs.training.pretrained.sources import is_converted

MAX_SECONDS = 5.0


def check_fit(spec: EvalSpec, prompts: Sequence[str]) -> None:
    """Refuse an evaluation whose longest prompt and answer are longer than the model's context.

    A model that a server holds, or that is not on this machine, refuses nothing here.

    Raises:
        SpecError: They do not fit, and the sentence says which length does; or vLLM cannot share the model.
        UnreadableFileError: The model's tokenizer is damaged.
    """
    shape = None if spec.server is not None else model_shape(spec.model.source, spec.model.revision)
    check_split(spec.model.source, shape, spec.num_gpus, "num_gpus")
    limits = [spec.context_tokens, None if shape is None else shape.context]
    context = min((limit for limit in limits if limit is not None), default=None)
    if context is None or context >= spec.max_response_tokens + max(map(_most_tokens, prompts), default=1):
        return
    longest = max(_token_lengths(spec, prompts), default=1)
    tokens_left = context - longest
    if tokens_left >= spec.max_response_tokens:
        return
    advice = (
        f"set max_response_tokens to {tokens_left:,} or less"
        if tokens_left > 0
        else "choose a model with a longer context"
    )
    raise SpecError(
        f"the longest prompt ({longest:,} tokens) and an answer of {spec.max_response_tokens:,} "
        f"do not fit into the context of {context:,}; {advice}.",
        "max_response_tokens",
    )


def _most_tokens(prompt: str) -> int:
    """Return more tokens than any tokenizer makes of a text: a token is a byte or more."""
    return len(prompt.encode(errors="surrogatepass")) + 1


def _token_lengths(spec: EvalSpec, prompts: Sequence[str]) -> list[int]:
    """Return the prompts' lengths, nothing where the model's tokenizer is not at hand."""
    path = model_file(spec.model.source, TOKENIZER_FILE, spec.model.revision)
    if path is None:
        return []
    return [len(encoded.ids) for encoded in read_tokenizer(path).encode_batch(list(prompts))]


def refuse_unknown(
    field: str, source: str, revision: str | None = None, kind: Literal["model", "dataset"] = "model"
) -> None:
    """Refuse a source that is no file, no hub name, or one that the hub does not know.

    If the hub does not answer, or must not be used (`HF_HUB_OFFLINE`), nothing is refused: the cache may have it.

    Raises:
        SpecError: It is none of these; the sentence names the field.
    """
    if os.path.exists(source) or is_converted(source):
        return
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    expected = f"expected an existing file or folder, or the name of a {kind} of the Hugging Face hub"
    try:
        HfApi().repo_info(source, repo_type=kind, revision=revision, timeout=MAX_SECONDS)
    except hub.HFValidationError:
        raise SpecError(f"{expected}, got {source!r}.", field) from None
    except hub.RevisionNotFoundError:
        raise SpecError(f"{expected}; {source} has no revision {revision!r}.", field) from None
    except hub.GatedRepoError:
        raise SpecError(f"{source} is gated; request access on the hub, and log in.", field) from None
    except hub.RepositoryNotFoundError:
        raise SpecError(f"{expected}; the hub has no {source!r}, or it is private.", field) from None
    except (OSError, httpx.HTTPError, hub.HfHubHTTPError):
        return
