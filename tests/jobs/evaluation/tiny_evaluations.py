"""A tiny model on disk, and evaluations of it."""

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec

PIECES = ["\\boxed{", "}", "ANSWER: ", "</think>"]


def save_tiny_model(folder: Path, seed: int = 0) -> Path:
    """Write a random model that knows every printable character, and `\\boxed{` as one token, so that it boxes."""
    vocabulary = ["<unk>", "<eos>", *PIECES, *sorted(set(string.printable) - {"}"})]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    special = {"unk_token": "<unk>", "eos_token": "<eos>", "pad_token": "<eos>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **special)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=16384, bos_token_id=None, eos_token_id=1, pad_token_id=1,
        tie_word_embeddings=True,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def tiny_evaluation(model: Path, benchmarks: tuple[BenchmarkChoice, ...], **changes: object) -> EvalSpec:
    fields = {"max_response_tokens": 12, "template": "compact", "batch_responses": 4, "num_graders": 1}
    return EvalSpec(model=EvalModelSpec(source=str(model)), benchmarks=benchmarks, **(fields | changes))
