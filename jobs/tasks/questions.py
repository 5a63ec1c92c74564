"""What every task shares: how a question gets its identity and its prompt tokens."""

import hashlib
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from exgrpo_core.types import Question


class TextEncoder(Protocol):
    """The one thing a question needs of a tokenizer; every Hugging Face tokenizer has it."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of `text`."""
        ...


def hash_question(source: str, text: str, answer: str) -> str:
    """Return 16 hexadecimal digits that depend on the question's own content, not on file, template or tokenizer."""
    content = "\x1f".join((source, text, answer))
    return hashlib.sha256(content.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]


def encode_prompt(tokenizer: TextEncoder, prompt_text: str, adds_special_tokens: bool = False) -> list[int]:
    """Return the prompt's token ids; `adds_special_tokens` lets the tokenizer put its start token, if any, in front.

    What it would put behind the text, such as an end token, is left out: the model has to continue the prompt.
    """
    plain = list(tokenizer.encode(prompt_text, add_special_tokens=False))
    if not adds_special_tokens:
        return plain
    whole = list(tokenizer.encode(prompt_text, add_special_tokens=True))
    starts = (start for start in range(len(whole) - len(plain) + 1) if whole[start : start + len(plain)] == plain)
    start = next(starts, None)
    return whole if start is None else whole[: start + len(plain)]


def build_question(
    index: int, question_id: str, prompt_text: str, answer: str, prompt_ids: list[int], metadata: Mapping[str, object]
) -> Question:
    """Return the core's question at position `index` of the data set."""
    return Question(
        index=index,
        question_id=question_id,
        prompt_ids=np.asarray(prompt_ids, dtype=np.int32),
        prompt_text=prompt_text,
        answer=answer,
        metadata=dict(metadata),
    )
