"""Tiny random models of several architectures, with a tokenizer of single characters."""

import string

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from exgrpo.jobs.training.engines.embedded.model import PolicyModel, wrap_model

PAD, END = 0, 1
CHARACTERS = string.digits + string.ascii_lowercase + "+-*=:"
VOCABULARY = ["<pad>", "<eos>", *CHARACTERS]
VOCABULARY_SIZE = len(VOCABULARY)
SIZES = {
    "vocab_size": VOCABULARY_SIZE, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "max_position_embeddings": 128, "initializer_range": 0.3, "pad_token_id": PAD, "bos_token_id": None,
    "eos_token_id": END,
}  # fmt: skip
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(VOCABULARY)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", clean_up_tokenization_spaces=False
    )


def qwen2_tied() -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(**SIZES, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
    )


def qwen2_untied() -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(**SIZES, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False)
    )


def qwen3() -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(**SIZES, num_attention_heads=4, num_key_value_heads=2, head_dim=12, tie_word_embeddings=True)
    )


def llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=1))


def llama_with_biases() -> LlamaForCausalLM:
    config = LlamaConfig(
        **SIZES, num_attention_heads=4, num_key_value_heads=2, attention_bias=True, mlp_bias=True, head_dim=16
    )
    return LlamaForCausalLM(config)


def llama3_rope() -> LlamaForCausalLM:
    config = LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2, rope_parameters=LLAMA3_ROPE)
    return LlamaForCausalLM(config)


def gpt2() -> GPT2LMHeadModel:
    sizes = {"vocab_size": VOCABULARY_SIZE, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    ends = {"bos_token_id": None, "eos_token_id": END, "pad_token_id": PAD}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ends, initializer_range=0.3))


PACKED = {build.__name__: build for build in (qwen2_tied, qwen2_untied, qwen3, llama, llama_with_biases, llama3_rope)}
ARCHITECTURES = PACKED | {"gpt2": gpt2}


def build_model(architecture: str, seed: int = 0) -> PreTrainedModel:
    """Return a model whose norms and biases are random too, so that a forgotten one shows."""
    torch.manual_seed(seed)
    model = ARCHITECTURES[architecture]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            elif "lm_head" in name or "embed" in name or "wte" in name:
                parameter.mul_(2.0)
    return model


def build_policy(architecture: str = "qwen2_tied", seed: int = 0) -> PolicyModel:
    return wrap_model(build_model(architecture, seed), tiny_tokenizer(), torch.device("cpu"))
