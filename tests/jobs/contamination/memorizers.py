"""Tiny models that learned texts by heart."""

from collections.abc import Sequence

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def train_on_texts(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], num_steps: int) -> LlamaForCausalLM:
    """Return a model that was trained on all texts at once, so many steps."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(num_steps):
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()
