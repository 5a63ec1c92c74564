"""Supervised fine-tuning (SFT) of small models on demonstrations, fast enough for one CPU core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

ROPE_THETA = 10000.0
INITIALIZER_RANGE = 0.04
MAX_POSITIONS = 1024
WARMUP_STEPS = 30
FINAL_LEARNING_RATE = 1e-5
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Token ids of a prompt and of a response to imitate, end-of-sequence token included."""

    prompt_ids: list[int]
    response_ids: list[int]


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """Steps and peak learning rate; warmed up over 30 steps, then linear decay."""

    num_steps: int
    learning_rate: float
    num_chunks: int = 4
    """Parts of equal size, sorted by length, into which a batch is split to save padding."""


def make_small_model(
    tokenizer: PreTrainedTokenizerFast, num_layers: int, width: int, num_heads: int, seed: int
) -> Qwen2ForCausalLM:
    """Return a fresh Qwen2 model with tied embeddings for the tokenizer's vocabulary; its size is the tokenizer's."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)  # type: ignore[no-untyped-call]


def train_by_imitation(
    model: Qwen2ForCausalLM,
    draw_batch: Callable[[float], list[Demonstration]],
    settings: ImitationSettings,
    progress: Callable[[int, int], None] | None = None,
) -> float:
    """Train on batches from `draw_batch(share of steps done)`; return the last mean loss a token, in nats."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=0.0, betas=(0.9, 0.98), fused=True
    )
    model.train()
    loss = 0.0
    with _one_thread():
        for step in range(settings.num_steps):
            share_done = step / settings.num_steps
            warmth = min(1.0, (step + 1) / WARMUP_STEPS)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * warmth * (1 - share_done) + FINAL_LEARNING_RATE
            optimizer.zero_grad()
            loss = _accumulate_gradients(model, draw_batch(share_done), settings.num_chunks)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if progress is not None:
                progress(step + 1, settings.num_steps)
    model.eval()  # type: ignore[no-untyped-call]
    return loss


def _accumulate_gradients(model: Qwen2ForCausalLM, batch: list[Demonstration], num_chunks: int) -> float:
    """Add the gradient of the batch's mean token loss, chunk by chunk; return that loss."""
    by_length = sorted(batch, key=lambda item: len(item.prompt_ids) + len(item.response_ids))
    num_tokens = sum(len(item.response_ids) for item in batch)
    size = -(-len(batch) // num_chunks)
    total = 0.0
    for start in range(0, len(by_length), size):
        input_ids, targets = _pad(by_length[start : start + size])
        is_response = targets != IGNORED
        # Right padding under a causal mask reaches no response token, so no attention mask is needed.
        hidden = model.model(input_ids=input_ids, use_cache=False).last_hidden_state[is_response]
        logits = F.linear(hidden, model.lm_head.weight)
        loss = F.cross_entropy(logits, targets[is_response], reduction="sum") / num_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total


def _pad(items: list[Demonstration]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return input ids and targets (B, T), right-padded; targets outside responses are ignored."""
    width = max(len(item.prompt_ids) + len(item.response_ids) for item in items) - 1
    input_ids = torch.zeros(len(items), width, dtype=torch.long)
    targets = torch.full((len(items), width), IGNORED)
    for row, item in enumerate(items):
        sequence = torch.tensor(item.prompt_ids + item.response_ids)
        input_ids[row, : len(sequence) - 1] = sequence[:-1]
        first = len(item.prompt_ids) - 1
        targets[row, first : len(sequence) - 1] = sequence[first + 1 :]
    return input_ids, targets


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hold torch to one thread: for models this small more threads are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
