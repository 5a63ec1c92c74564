"""Supervised fine-tuning (SFT) of small models on demonstrations, fast enough for one CPU core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from exgrpo.jobs.training.engines.embedded.model import PolicyModel, wrap_model
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Scoring

ROPE_THETA = 10000.0
INITIALIZER_RANGE = 0.04
MAX_POSITIONS = 1024
WARMUP_STEPS = 30
FINAL_LEARNING_RATE = 1e-5
SCORING = Scoring(temperature=1.0, has_entropies=False)


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """Steps and peak learning rate; warmed up over 30 steps, then linear decay."""

    num_steps: int
    learning_rate: float


def make_demonstration(prompt_ids: list[int], response_ids: list[int]) -> TokenSequence:
    """Return token ids of a prompt and of a response to imitate, end-of-sequence token included."""
    return TokenSequence(np.asarray(prompt_ids, dtype=np.int32), np.asarray(response_ids, dtype=np.int32))


def make_small_policy(
    tokenizer: PreTrainedTokenizerFast, num_layers: int, width: int, num_heads: int, seed: int
) -> PolicyModel:
    """Return a fresh Qwen2 model with tied embeddings on the CPU; its vocabulary is the tokenizer's."""
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
        model = Qwen2ForCausalLM(config)  # type: ignore[no-untyped-call]
    return wrap_model(model, tokenizer, torch.device("cpu"))


def train_by_imitation(
    policy: PolicyModel,
    draw_batch: Callable[[float], list[TokenSequence]],
    settings: ImitationSettings,
    progress: Callable[[int, int], None] | None = None,
) -> float:
    """Train on batches from `draw_batch(share of steps done)`; return the last mean loss a token, in nats.

    `progress` hears of steps done and steps in all.
    """
    parameters = list(policy.model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.learning_rate, weight_decay=0.0, betas=(0.9, 0.98), fused=True
    )
    loss = torch.zeros(())
    with _one_thread():
        for step in range(settings.num_steps):
            share_done = step / settings.num_steps
            warmth = min(1.0, (step + 1) / WARMUP_STEPS)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * warmth * (1 - share_done) + FINAL_LEARNING_RATE
            loss = -policy.backend.score(draw_batch(share_done), SCORING).log_probs.mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            policy.backend.weights_changed()
            if progress is not None:
                progress(step + 1, settings.num_steps)
    return loss.item()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hold torch to one thread: for models this small more threads are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
