"""The tokenizer of register chains: about fifty tokens, longest match first, made on this machine."""

import re

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerFast

from jobs.tasks.chains.demonstrators import REGISTER_NAMES
from jobs.tasks.chains.problem import LABELS

PAD_TOKEN = "<pad>"
END_TOKEN = "<eos>"
UNKNOWN_TOKEN = "<unk>"
SPECIAL_TOKENS = (PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN)
TEXT_TOKENS = (
    *("Q", ":", "\n", "\\boxed{", "}", "```python\n", "```\n", "print("),
    *(")", "(", "%", "=", ";", "+", "-", "*"),
    *"0123456789",
    *REGISTER_NAMES,
    *LABELS,
)
MAX_TOKENS = 512


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer; decoding gives back the encoded text exactly, and encoding a decoded text its tokens."""
    vocabulary = {token: number for number, token in enumerate((*SPECIAL_TOKENS, *TEXT_TOKENS))}
    longest_first = sorted(TEXT_TOKENS, key=len, reverse=True)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_TOKEN))
    pattern = Regex("|".join(_escape(token) for token in longest_first))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        eos_token=END_TOKEN,
        unk_token=UNKNOWN_TOKEN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
    )


def _escape(token: str) -> str:
    return re.escape(token).replace("\\\n", "\n")
