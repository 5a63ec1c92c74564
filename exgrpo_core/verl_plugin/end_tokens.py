"""The tokens that end a response of a Hugging Face model."""

from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerBase

from exgrpo_core.engine import read_end_tokens


def find_end_tokens(source: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens that end a response, by the model's generation settings, its configuration and its tokenizer.

    Raises:
        EngineError: The model names no end token, or something that is none.
    """
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    try:
        generation = GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:
        generation = None
    return read_end_tokens(source, generation, getattr(config, "eos_token_id", None), tokenizer.eos_token_id)
