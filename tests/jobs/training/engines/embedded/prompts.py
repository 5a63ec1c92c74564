"""Ragged prompts and plain scores by `transformers` to compare with."""

import numpy as np
import torch

from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from tests.jobs.training.engines.tiny_models import VOCABULARY_SIZE


def ragged_prompts(count: int = 6, seed: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(2, VOCABULARY_SIZE, rng.integers(1, 14)).astype(np.int32) for _ in range(count)]


def sampler(temperature: float = 1.0, seed: int = 0) -> Sampler:
    return Sampler(temperature, torch.Generator().manual_seed(seed))


def plain_scores(model, prompt_ids, token_ids, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and entropies of one response, by the model's own forward on that row alone."""
    row = torch.from_numpy(np.concatenate([prompt_ids, token_ids]).astype(np.int64))[None]
    with torch.no_grad():
        logits = model(row).logits[0, prompt_ids.size - 1 : -1].double() / temperature
    log_probs = logits.log_softmax(-1)
    taken = log_probs.gather(-1, row[0, prompt_ids.size :, None])[:, 0]
    return taken.numpy(), -(log_probs.exp() * log_probs).sum(-1).numpy()
