"""The tokens that end a response of a Hugging Face model."""

from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from exgrpo_core.errors import EngineError


def find_end_tokens(source: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens that end a response, by the model's generation settings, its configuration and its tokenizer.

    Raises:
        EngineError: The model names no end token.
    """
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    try:
        generation = GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:
        generation = None
    end_tokens: set[int] = set()
    for value in (generation, getattr(config, "eos_token_id", None), tokenizer.eos_token_id):
        end_tokens |= set(value) if isinstance(value, list) else {value} if value is not None else set()
    if not end_tokens:
        raise EngineError(f"model: {source} names no end-of-sequence token; set eos_token_id in its config.json.")
    return sorted(end_tokens)
