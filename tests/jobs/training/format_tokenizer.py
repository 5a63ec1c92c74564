"""A small tokenizer for given texts."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD_TOKEN = "<pad>"
END_TOKEN = "<eos>"
FORMAT_TOKENS = ("</think>", "\\boxed{", "}")
MAX_TOKENS = 1024


def make_format_tokenizer(texts, vocabulary_size):
    """Return a byte-level BPE tokenizer trained on `texts`; it encodes any text, and decoding gives it back exactly."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - len(FORMAT_TOKENS), special_tokens=[PAD_TOKEN, END_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in FORMAT_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD_TOKEN, eos_token=END_TOKEN, padding_side="left",
        clean_up_tokenization_spaces=False, model_max_length=MAX_TOKENS,
    )  # fmt: skip
