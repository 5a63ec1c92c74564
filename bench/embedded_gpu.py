"""The embedded engine on a CUDA GPU, at shapes of Qwen2.5 with random weights: speed, memory, agreement with the CPU.

Random weights end no response before its limit and solve nothing, so lengths are fixed and rewards are coins: what is
measured is the machine's work, not learning. Steps of ExGRPO and of on-policy training alternate.

Run `make bench-gpu` or `python -m bench.embedded_gpu`; `--device cpu --shapes tiny` tries the program without a GPU.
"""

import argparse
import dataclasses
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from bench.report import report
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.tasks.grading.reward_function import Response, Verdict
from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.engines.embedded.model import PolicyModel, resolve_device, wrap_model
from exgrpo.jobs.training.engines.embedded.update import OptimSettings
from exgrpo.jobs.training.pretrained.model_shapes import ModelShape, model_shape
from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch, TrainingRow
from exgrpo_core.types import Question

SHAPES = {"0.5b": "Qwen/Qwen2.5-0.5B", "1.5b": "Qwen/Qwen2.5-Math-1.5B"}
TINY = ModelShape(
    hidden=64, intermediate=192, layers=2, heads=4, kv_heads=2, vocabulary=512, is_tied=True, context=4096
)
PROMPT_TOKENS = 64
NUM_QUESTIONS = 64
NUM_WARM_STEPS = 2
GIB = 2**30
# bfloat16 keeps 8 bits: what the tiny model computes may differ that much from float32 on the CPU.
TARGETS = {"tiny/loss_gap": "<= 0.02", "tiny/gradient_norm_ratio_gap": "<= 0.05"}


class CoinReward:
    """Calls 4 of 10 responses correct, by their tokens alone."""

    def grade(self, questions: Sequence[Question], responses: Sequence[Response]) -> list[Verdict]:
        """Return a verdict a response."""
        assert len(questions) == len(responses)
        coins = [zlib.crc32(response.token_ids.data) % 10 < 4 for response in responses]
        return [Verdict(float(coin), "correct" if coin else "wrong") for coin in coins]


def make_policy(shape: ModelShape, device: torch.device, context: int) -> PolicyModel:
    """Return a model of this shape with random weights, the same ones on every device."""
    tokenizer = make_tokenizer()
    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=context,
        tie_word_embeddings=shape.is_tied,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    return wrap_model(Qwen2ForCausalLM(config), tokenizer, device)  # type: ignore[no-untyped-call]


def make_questions(vocabulary: int) -> list[Question]:
    """Return questions with random prompts of 64 tokens."""
    rng = np.random.default_rng(0)
    prompts = rng.integers(3, vocabulary, (NUM_QUESTIONS, PROMPT_TOKENS), dtype=np.int32)
    return [Question(i, f"q{i}", prompt, "", "") for i, prompt in enumerate(prompts)]


def make_config(batch_size: int, response_tokens: int, experience_ratio: float) -> ExGRPOConfig:
    """Return the paper's settings at this size, replaying from the second step on."""
    return ExGRPOConfig(
        batch_size=batch_size,
        mini_batch_size=batch_size // 2,
        max_prompt_tokens=PROMPT_TOKENS,
        max_response_tokens=response_tokens,
        experience_ratio=experience_ratio,
        start_pass_rate=None,
    )


def measure_shape(shape: ModelShape, device: torch.device, options: argparse.Namespace) -> dict[str, float]:
    """Return generated tokens a second, seconds of both methods' steps, their ratio and peak memory."""
    questions = make_questions(shape.vocabulary)
    configs = [make_config(options.batch_size, options.response_tokens, ratio) for ratio in (0.0, 0.5)]
    policy = make_policy(shape, device, PROMPT_TOKENS + options.response_tokens)
    engine = EmbeddedEngine(policy, CoinReward(), configs[1], OptimSettings(learning_rate=1e-6), seed=0)
    seconds: list[list[float]] = [[], []]
    speeds, scoring = [], []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with tempfile.TemporaryDirectory() as folder:
        states = [ExGRPOState.create(Path(folder) / str(i), questions, config) for i, config in enumerate(configs)]
        for number in range(NUM_WARM_STEPS + options.steps):
            for method, (state, config) in enumerate(zip(states, configs, strict=True)):
                metrics = exgrpo_step(state, engine, config).metrics
                if number >= NUM_WARM_STEPS:
                    seconds[method].append(metrics["seconds/step"])
                    speeds.append(metrics["tokens/generated"] / metrics["seconds/rollout"])
                    scoring += [metrics["seconds/score"]] * method
        for state in states:
            state.replay_buffer.close()
    on_policy, exgrpo = (float(np.median(second)) for second in seconds)
    peak = torch.cuda.max_memory_allocated(device) / GIB if device.type == "cuda" else float("nan")
    return {
        "parameters_m": policy.model.num_parameters() / 1e6,
        "generated_tokens_per_s": float(np.median(speeds)),
        "on_policy_step_s": on_policy,
        "exgrpo_step_s": exgrpo,
        "exgrpo_score_s": float(np.median(scoring)),
        "step_ratio": exgrpo / on_policy,
        "peak_memory_gib": peak,
    }


def measure_agreement(device: torch.device) -> dict[str, float]:
    """Return how far loss and gradient of the same rows on `device` are from the CPU's float32."""
    questions = make_questions(TINY.vocabulary)[:4]
    config = make_config(4, 64, 0.5)
    cpu = EmbeddedEngine(
        make_policy(TINY, torch.device("cpu"), 128), CoinReward(), config, OptimSettings(learning_rate=1e-6), seed=0
    )
    other = EmbeddedEngine(make_policy(TINY, device, 128), CoinReward(), config, OptimSettings(learning_rate=1e-6), 0)
    groups = cpu.rollout([RolloutRequest(question, 8) for question in questions])
    rng = np.random.default_rng(1)
    rows = [
        TrainingRow(
            group.question.prompt_ids, trajectory.token_ids, trajectory.log_probs, float(rng.normal()), i % 8 == 0
        )
        for group in groups
        for i, trajectory in enumerate(group.trajectories)
    ]
    objective = build_objective(dataclasses.replace(config, entropy_coefficient=0.0), is_replay_open=True)
    expected, actual = (engine.update([MiniBatch(rows, 4)], objective) for engine in (cpu, other))
    gradient = "optim/gradient_norm"
    return {
        "loss_gap": abs(actual["loss/policy"] - expected["loss/policy"]) / max(abs(expected["loss/policy"]), 1e-3),
        "gradient_norm_ratio_gap": abs(actual[gradient] / expected[gradient] - 1.0),
    }


def main() -> int:
    """Measure and report; 1 where there is no such device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--shapes", nargs="+", choices=["tiny", *SHAPES], default=list(SHAPES))
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each method")
    parser.add_argument("--batch-size", type=int, default=16, help="questions a step, 8 rollouts each")
    parser.add_argument("--response-tokens", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        device = resolve_device(options.device)
    except EngineError as error:
        print(error)
        return 1
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {options.batch_size} questions x 8, {options.response_tokens} tokens")
    figures = {f"tiny/{key}": value for key, value in measure_agreement(device).items()}
    print(*(f"{key} {value:.2g}" for key, value in figures.items()), sep=", ", flush=True)
    for label in options.shapes:
        shape = TINY if label == "tiny" else model_shape(SHAPES[label])
        assert shape is not None
        measured = measure_shape(shape, device, options)
        for key, value in measured.items():
            print(f"  {label:>5} {key:<24}{value:12.3f}")
        figures |= {f"{label}/{key}": value for key, value in measured.items() if np.isfinite(value)}
    report("embedded_gpu", {"device": name, **figures}, TARGETS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
