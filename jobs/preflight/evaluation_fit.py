"""Whether prompts and answers of an evaluation fit into the model's context, as far as this machine can tell."""

from collections.abc import Sequence

from jobs.preflight.model_shapes import TOKENIZER_FILE, model_file, model_shape
from jobs.preflight.tokenizer_file import read_tokenizer
from jobs.specs.evaluation import EvalSpec
from jobs.specs.mistakes import SpecError


def check_fit(spec: EvalSpec, prompts: Sequence[str]) -> None:
    """Refuse an evaluation whose longest prompt and answer are longer than the model's context.

    A model that a server holds, or that is not on this machine, refuses nothing here.

    Raises:
        SpecError: They do not fit; the sentence says which length does.
        UnreadableFileError: The model's tokenizer is damaged.
    """
    shape = None if spec.server is not None else model_shape(spec.model.source, spec.model.revision)
    if shape is None or shape.context >= spec.max_response_tokens + max(map(_most_tokens, prompts), default=1):
        return
    longest = max(_token_lengths(spec, prompts), default=1)
    tokens_left = shape.context - longest
    if tokens_left >= spec.max_response_tokens:
        return
    advice = (
        f"set max_response_tokens to {tokens_left:,} or less"
        if tokens_left > 0
        else "choose a model with a longer context"
    )
    raise SpecError(
        f"max_response_tokens: the longest prompt ({longest:,} tokens) and an answer of {spec.max_response_tokens:,} "
        f"do not fit into the model's context of {shape.context:,}; {advice}."
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
