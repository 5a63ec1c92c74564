"""A random model of SmolLM2's shape, made small: Llama with grouped queries, ChatML, a byte-level vocabulary."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from exgrpo.jobs.tasks.word_problems.question_set import make_stories
from tests.jobs.training.format_tokenizer import make_format_tokenizer

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_chat_model(folder: Path) -> Path:
    tokenizer = make_format_tokenizer([story.prompt for story in make_stories(60, 0)], vocabulary_size=600)
    tokenizer.chat_template = CHAT_TEMPLATE
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
