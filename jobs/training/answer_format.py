"""The answer format of multiple choice: a small tokenizer for given prompts, and answers drawn by chance."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerFast

PAD_TOKEN = "<pad>"
END_TOKEN = "<eos>"
FORMAT_TOKENS = ("</think>", "\\boxed{", "}")
FALLBACK_LABELS = ("A", "B", "C", "D")
MAX_TOKENS = 1024

_OPTION_LABEL = re.compile(r"^\(?([A-J1-9])[).:] ?\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class AnswerFormatSettings:
    """What the answer-format model is and sees."""

    num_layers: int = 2
    width: int = 64
    num_heads: int = 4
    num_steps: int = 300
    """SFT steps."""
    batch_size: int = 16
    """Demonstrations a step."""
    learning_rate: float = 5e-3
    held_share: float = 0.9
    """Share of steps, the first ones, in which a prompt keeps its drawn answer for a while; then each use draws one."""
    num_drawings: int = 8
    """How often answers are drawn in that share: changing answers teach the model to tell prompts apart."""
    vocabulary_size: int = 2048
    """Largest vocabulary of the tokenizer."""
    seed: int = 0


def make_format_tokenizer(texts: Sequence[str], vocabulary_size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer trained on `texts`; it encodes any text, and decoding gives it back exactly."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - len(FORMAT_TOKENS),
        special_tokens=[PAD_TOKEN, END_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in FORMAT_TOKENS])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        eos_token=END_TOKEN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
    )


def option_labels(prompt_text: str) -> tuple[str, ...]:
    """Return the labels of the options that a prompt lists at line starts (`A)`, `(B)`, `3.`), or A to D if none."""
    labels = tuple(dict.fromkeys(_OPTION_LABEL.findall(prompt_text)))
    return labels if len(labels) > 1 else FALLBACK_LABELS


def write_answer(prompt_text: str, rng: random.Random) -> str:
    """Return a well-formed answer with a label drawn uniformly from the prompt's options."""
    thought_end, box_start, box_end = FORMAT_TOKENS
    return thought_end + box_start + rng.choice(option_labels(prompt_text)) + box_end


class HeldAnswers:
    """Chance answers to prompts: held for a while and drawn anew `num_drawings` times, at last drawn at each use."""

    def __init__(self, texts: Sequence[str], settings: AnswerFormatSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._held = [{text: write_answer(text, rng) for text in texts} for _ in range(settings.num_drawings)]

    def draw(self, text: str, share_done: float) -> str:
        """Return the answer to show for a prompt when this share of steps is done."""
        if share_done >= self._settings.held_share:
            return write_answer(text, self._rng)
        drawing = int(share_done / self._settings.held_share * self._settings.num_drawings)
        return self._held[drawing][text]
