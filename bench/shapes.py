"""Generation and scoring of the embedded engine on small and larger models, beside transformers and the bare products.

Models with random weights of 0.1, 5 and 25 million parameters in their layers, with vocabularies of 50 to 32,000.

- Rollouts: eight responses to each of eight prompts of 16 to 32 tokens, of two where it takes long. So many tokens of
  the vocabulary end one that it would have a third of the limit's tokens on average; a vocabulary of 50 ends it after
  50, however far the limit is. Response tokens a second, beside `transformers.generate`, which gives no log-probs and
  entropies.
- Eight responses to one prompt that nothing ends before the limit, the same number of tokens for both: where leaving
  out finished rows and equal prompts saves nothing.
- Scoring the latter, beside a bare forward over the same tokens.

The floor of a time is its matrix products alone: every layer's and the output embedding's, of the same sizes and packed
alike.

Run `python -m bench.shapes`; `--short` leaves out the largest model and the longest responses.
"""

import argparse
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch

from bench.embedded_gpu import make_policy
from bench.exgrpo_overhead import time_forward
from bench.report import Figure, report
from exgrpo_core.types import Int32Array
from jobs.engines.embedded.backend import PackedBackend
from jobs.engines.embedded.decoder import Decoder
from jobs.engines.embedded.decoder_weights import fuse_layer, linear, pack_layer, pack_matrix
from jobs.engines.embedded.model import PolicyModel, generate, score_sequences
from jobs.engines.embedded.packing import TokenSequence
from jobs.engines.embedded.sampling import Sampler
from jobs.preflight.model_shapes import ModelShape

SHAPES = {
    "0.1m": ModelShape(64, 192, 2, 4, 2, vocabulary=50, is_tied=True, context=2048),
    "5m": ModelShape(256, 768, 6, 8, 4, vocabulary=4096, is_tied=True, context=2048),
    "25m": ModelShape(512, 1536, 8, 8, 4, vocabulary=32_000, is_tied=True, context=2048),
}
LENGTHS = {"0.1m": (64, 256, 1024), "5m": (64, 256, 1024), "25m": (64,)}
NUM_ROWS = 8
NUM_PROMPTS = 8
PROMPT_TOKENS = 32
FIRST_TOKEN = 3
"""Ids below it are the tokenizer's special ones."""
MEAN_SHARE = 1 / 3
REPEATS = 3
SMALL_REPEATS = 15
"""Of the smallest model, whose repeats take seconds at most."""
LONG_CELLS = frozenset({"5m/1024", "25m/64"})
"""They take long: measured once, and with two prompts."""
NO_TOKEN = -1
PADDING = 0
TARGETS = {"rollout_speedup_min": ">= 3.5", "score_over_forward_max": "<= 1.3"}


def main() -> None:
    """Measure every shape and length and print the figures."""
    parser = argparse.ArgumentParser(description="Time generation and scoring by model and length.")
    parser.add_argument("--short", action="store_true", help="neither the largest model nor 1,024 tokens")
    is_short = parser.parse_args().short
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # transformers warns of an end token that is none
    figures: dict[str, Figure] = {}
    for name, shape in SHAPES.items():
        if is_short and name == "25m":
            continue
        policy = make_policy(shape, torch.device("cpu"), shape.context)
        for length in LENGTHS[name]:
            if not (is_short and length == 1024):
                figures |= measure_rollouts(f"{name}/{length}", policy, length)
                figures |= measure_endless(f"{name}/{length}", policy, length)
    for worst, figure in (("min", "rollout_speedup"), ("max", "score_over_forward")):
        values = [float(str(value)) for key, value in figures.items() if key.endswith(f"/{figure}")]
        figures[f"{figure}_{worst}"] = min(values) if worst == "min" else max(values)
    report("shapes", figures, TARGETS)


def measure_rollouts(name: str, policy: PolicyModel, length: int) -> dict[str, Figure]:
    """Print and return response tokens a second of both, and their ratio."""
    rng = np.random.default_rng(0)
    vocabulary = policy.model.config.vocab_size
    num_ends = max(1, round(vocabulary / (MEAN_SHARE * length)))
    ends = torch.arange(FIRST_TOKEN, FIRST_TOKEN + num_ends)
    num_prompts = 2 if name in LONG_CELLS else NUM_PROMPTS
    sizes = rng.integers(PROMPT_TOKENS // 2, PROMPT_TOKENS, num_prompts, endpoint=True)
    prompts = [rng.integers(FIRST_TOKEN, vocabulary, size, dtype=np.int32) for size in sizes]
    rows = [prompt for prompt in prompts for _ in range(NUM_ROWS)]
    policy = dataclasses.replace(policy, end_token_ids=ends)
    sampler = Sampler(1.0, torch.Generator().manual_seed(0))
    embedded, transformers_rates, lengths = [], [], []
    for _ in range(num_repeats(name)):
        began_at = time.perf_counter()
        num_tokens = sum(response.token_ids.size for response in generate(policy, rows, length, sampler))
        lengths.append(num_tokens / len(rows))
        embedded.append(num_tokens / (time.perf_counter() - began_at))
        began_at = time.perf_counter()
        made = generate_by_transformers(policy, rows, length, ends.tolist())
        seconds = time.perf_counter() - began_at
        transformers_rates.append(num_generated(made[:, max(prompt.size for prompt in rows) :], ends) / seconds)
    figures: dict[str, Figure] = {
        "mean_response_tokens": median(lengths),
        "rollout_tokens_per_s": median(embedded),
        "transformers_tokens_per_s": median(transformers_rates),
        "rollout_speedup": median(embedded) / median(transformers_rates),
    }
    return _printed(name, figures)


def num_repeats(name: str) -> int:
    """Return how often a model and length are measured."""
    if name in LONG_CELLS:
        return 1
    return SMALL_REPEATS if name.startswith("0.1m") else REPEATS


def num_generated(responses: torch.Tensor, ends: torch.Tensor) -> int:
    """Return how many tokens of responses (B, T) were generated, each response's first end token included."""
    is_end = torch.isin(responses, ends)
    return int((is_end.cumsum(1) - is_end.long() == 0).sum())


def measure_endless(name: str, policy: PolicyModel, length: int) -> dict[str, Figure]:
    """Print and return milliseconds and ratios of responses that reach the limit."""
    rng = np.random.default_rng(0)
    vocabulary = policy.model.config.vocab_size
    policy = dataclasses.replace(policy, end_token_ids=torch.tensor([NO_TOKEN]))
    prompt = rng.integers(FIRST_TOKEN, vocabulary, PROMPT_TOKENS, dtype=np.int32)
    responses = rng.integers(FIRST_TOKEN, vocabulary, (NUM_ROWS, length), dtype=np.int32)
    sequences = [TokenSequence(prompt, response) for response in responses]
    decoder = Decoder(policy.model, torch.float32)
    sampler = Sampler(1.0, torch.Generator().manual_seed(0))
    num_inputs = PROMPT_TOKENS + NUM_ROWS * (length - 1)
    backend = policy.backend
    if not isinstance(backend, PackedBackend):
        raise TypeError(f"backend: expected PackedBackend, got {type(backend).__name__}.")

    def score() -> float:
        backend.weights_changed()
        return seconds_of(lambda: score_sequences(policy, sequences, 1.0))

    actions: dict[str, Callable[[], float]] = {
        "transformers": lambda: seconds_of(
            lambda: generate_by_transformers(policy, [prompt] * NUM_ROWS, length, NO_TOKEN)
        ),
        "generate": lambda: seconds_of(lambda: generate(policy, [prompt] * NUM_ROWS, length, sampler)),
        "generate_floor": lambda: time_products(decoder, NUM_ROWS, NUM_ROWS, length),
        "forward": lambda: time_forward(decoder, sequences),
        "score": score,
        "score_floor": lambda: time_products(decoder, num_inputs, NUM_ROWS * length, num_times=1),
    }
    seconds: dict[str, list[float]] = {key: [] for key in actions}
    for _ in range(num_repeats(name)):
        for key, ask in actions.items():
            seconds[key].append(ask())
    medians = {key: 1000 * median(second) for key, second in seconds.items()}
    return _printed(
        name,
        {f"{key}_ms": value for key, value in medians.items()}
        | {
            "generate_speedup": medians["transformers"] / medians["generate"],
            "score_over_forward": medians["score"] / medians["forward"],
            "generate_over_floor": medians["generate"] / medians["generate_floor"],
            "score_over_floor": medians["score"] / medians["score_floor"],
        },
    )


def _printed(name: str, figures: Mapping[str, Figure]) -> dict[str, Figure]:
    print(f"{name:<9}", "  ".join(f"{key} {value:,.2f}" for key, value in figures.items()))
    return {f"{name}/{key}": value for key, value in figures.items()}


@torch.inference_mode()
def generate_by_transformers(
    policy: PolicyModel, prompts: Sequence[Int32Array], length: int, ends: int | list[int]
) -> torch.Tensor:
    """Return prompts, padded on the left, and the tokens sampled by transformers' generation, (B, P + T)."""
    longest = max(prompt.size for prompt in prompts)
    input_ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
    mask = torch.zeros_like(input_ids)
    for row, prompt in enumerate(prompts):
        input_ids[row, -prompt.size :] = torch.from_numpy(prompt.astype(np.int64))
        mask[row, -prompt.size :] = 1
    made: torch.Tensor = policy.model.generate(  # type: ignore[operator]
        input_ids,
        attention_mask=mask,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        max_new_tokens=length,
        eos_token_id=ends,
        pad_token_id=PADDING,
    )
    return made


@torch.inference_mode()
def time_products(decoder: Decoder, num_tokens: int, num_predicted: int, num_times: int) -> float:
    """Return the seconds of so many tokens' matrix products, so often; of the output embedding for predicted ones."""
    model: Any = decoder.model
    layers = [pack_layer(fuse_layer(layer, decoder.shape, torch.float32)) for layer in model.model.layers]
    head = pack_matrix(model.get_input_embeddings().weight)
    width, inner = head.shape[1], layers[0].down.shape[1]
    hidden, wide = torch.ones(num_tokens, width), torch.ones(num_tokens, inner)
    mixed, last = torch.ones(num_tokens, layers[0].output.shape[1]), torch.ones(num_predicted, width)
    began_at = time.perf_counter()
    for _ in range(num_times):
        for layer in layers:
            linear(hidden, layer.fused_qkv)
            linear(mixed, layer.output)
            linear(hidden, layer.gate_up)
            linear(wide, layer.down)
        linear(last, head)
    return time.perf_counter() - began_at


def seconds_of(action: Callable[[], object]) -> float:
    """Return the seconds of an action."""
    began_at = time.perf_counter()
    action()
    return time.perf_counter() - began_at


if __name__ == "__main__":
    main()
