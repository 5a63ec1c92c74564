"""Steps at the size of a real language model: SmolLM2-135M's shape, 64 rollouts of 96 tokens, one thread each.

The embedded engine (on-policy, and ExGRPO with a full replay buffer) beside TRL's GRPOTrainer, each in a process of its
own, one after the other; rollouts beside `transformers.generate`, vLLM's build for the CPU and llama.cpp (F16 beside
float32, Q8_0 beside bfloat16), which give no log-probs and entropies. All in float32, and in bfloat16 where the
processor has units for it. Weights are random, so that every response has the same length for all. Times are processor
time, which depends less on the machine's load; llama.cpp's are those of its clock.

The floor of a time is its matrix products alone: those of a decoding step of 64 rows for each token, and those of the
distinct tokens of an update, forward and backward. `unshared` is the on-policy step with every token of every row
computed, prompts too.

Run `python -m bench.real_model`; `--short` has 16 rollouts of 32 tokens, and one step each. `--vllm-python` names an
environment with vLLM (`make vllm-env`), `--llama-cpp` a folder with `llama-batched-bench`, `F16.gguf` and `Q8_0.gguf`.
"""

import argparse
import copy
import dataclasses
import gc
import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from bench.other_rollouts import decode_by_llama_cpp
from bench.real_model_contender import PROMPT_TOKENS, RESULT, ROLLOUTS, make_questions, open_policy
from bench.report import Figure, report
from bench.shapes import NO_TOKEN, generate_by_transformers
from exgrpo_core.process_memory import keep_freed_memory
from jobs.engines.embedded.decoder_weights import linear, pack_matrix
from jobs.engines.embedded.model import PolicyModel, generate
from jobs.engines.embedded.sampling import Sampler
from jobs.machine.hardware import MIN_BFLOAT16_PARAMETERS, uses_bfloat16

TARGETS = {
    "float32/step_over_floor": "<= 1.15",
    "float32/exgrpo_over_on_policy": "<= 1.05",
    "float32/manage_share": "<= 0.002",
    "float32/memory_over_trl": "<= 0.5",
    "bfloat16/step_over_floor": "<= 1.4",
    "bfloat16/exgrpo_over_on_policy": "<= 1.05",
    "bfloat16/manage_share": "<= 0.002",
    "bfloat16/memory_over_trl": "<= 0.5",
    "bfloat16/on_policy_log_prob_gap": "<= 0.01",
}


CONTENDERS = "bench.real_model_contender"


class DoesNotFitError(Exception):
    """The system killed a contender, as it does when memory runs out."""


class Contender:
    """A process that does pieces of work when asked."""

    def __init__(self, process: "subprocess.Popen[str]", name: str) -> None:
        self._process = process
        self._name = name

    def do(self, work: str) -> dict[str, float]:
        """Return the figures of a piece of work."""
        if self._process.stdin is None or self._process.stdout is None:
            raise TypeError(f"{self._name}: expected a process with pipes.")
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(RESULT):
                figures: dict[str, float] = json.loads(line.removeprefix(RESULT))
                return figures
        if self._process.wait() == -signal.SIGKILL:
            raise DoesNotFitError
        sys.exit(f"{self._name} ended before it had done its work; what it printed is above.")


@contextmanager
def open_contender(
    name: str, *words: object, python: str = sys.executable, module: str = CONTENDERS
) -> Iterator[Contender]:
    """Start a contender, and end it."""
    command = [python, "-m", module, name, *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Contender(process, name)
        finally:
            process.terminate()


def main() -> None:
    """Take steps in turn and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each")
    parser.add_argument("--questions", type=int, default=8, help="of 8 rollouts each")
    parser.add_argument("--short", action="store_true", help="16 rollouts of 32 tokens, one step each")
    parser.add_argument("--without-trl", action="store_true", help="leave out the longest steps")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="only in this one")
    parser.add_argument("--vllm-python", help="of an environment with vLLM")
    parser.add_argument(
        "--llama-cpp", type=Path, help="folder with llama-batched-bench and two GGUF files of the model"
    )
    options = parser.parse_args()
    num_questions, num_tokens, num_steps = (2, 32, 1) if options.short else (options.questions, 96, options.steps)
    torch.set_num_threads(1)
    keep_freed_memory()
    has_units = uses_bfloat16(MIN_BFLOAT16_PARAMETERS)
    dtypes = [options.dtype] if options.dtype else ["float32", *(["bfloat16"] if has_units else [])]
    others = [] if options.without_trl else ["trl"] if options.short else ["trl", "trl_kept"]
    reported: dict[str, Figure] = {"num_rollouts": num_questions * ROLLOUTS, "num_tokens": num_tokens}
    for dtype in dtypes:
        figures = measure_rollouts(dtype, num_questions, num_tokens, num_steps, options)
        gc.collect()
        figures |= measure_steps([*others, "embedded"], dtype, num_questions, num_tokens, num_steps)
        reported |= {f"{dtype}/{name}": value for name, value in (figures | ratios(figures, others)).items()}
    if "float32/trl_step_s" in reported and len(dtypes) == 2:
        reported["bfloat16/speedup_over_trl_in_float32"] = (
            reported["float32/trl_step_s"] / reported["bfloat16/on_policy_step_s"]
        )
    for name, value in reported.items():
        print(f"  {name:<40}{value:12.4f}")
    report("real_model", reported, {name: target for name, target in TARGETS.items() if name in reported})


def ratios(figures: Mapping[str, float], others: Sequence[str]) -> dict[str, float]:
    """Return what the figures of one dtype are beside floors, contenders and an on-policy step."""
    floor = figures["rollout_floor_s"] + figures["update_floor_s"]
    compared = {
        "step_over_floor": figures["on_policy_step_s"] / floor,
        "rollout_over_floor": figures["rollout_s"] / figures["rollout_floor_s"],
        "update_over_floor": figures["on_policy_update_s"] / figures["update_floor_s"],
        "rollout_speedup": figures["transformers_s"] / figures["rollout_s"],
        "exgrpo_over_on_policy": figures["exgrpo_step_s"] / figures["on_policy_step_s"],
        "manage_share": figures["exgrpo_manage_share"],
        "gain_of_shared_prefixes": figures["unshared_step_s"] / figures["on_policy_step_s"],
    }
    for name in ("vllm", "llama_cpp"):
        if f"{name}_s" in figures:
            compared[f"rollout_speedup_over_{name}"] = figures[f"{name}_s"] / figures["rollout_s"]
    for name in others:
        if f"{name}_step_s" not in figures:
            continue
        compared[f"speedup_over_{name}"] = figures[f"{name}_step_s"] / figures["on_policy_step_s"]
        compared[f"memory_over_{name}"] = figures["on_policy_peak_gib"] / figures[f"{name}_peak_gib"]
    return compared


def measure_steps(
    names: Sequence[str], dtype: str, num_questions: int, num_tokens: int, num_steps: int
) -> dict[str, float]:
    """Return medians of the contenders' steps; one contender at a time is in memory."""
    measured: dict[str, list[float]] = defaultdict(list)
    for name in names:
        pieces = ["on_policy", "exgrpo", "unshared"] if name == "embedded" else [name]
        try:
            with open_contender(name, dtype, num_questions, num_tokens) as contender:
                for work in pieces * num_steps:
                    done = contender.do(work)
                    values = "  ".join(f"{key} {value:.4g}" for key, value in done.items())
                    print(f"{dtype} {work:<10}", values, flush=True)
                    for key, value in done.items():
                        measured[f"{work}_{key}"].append(value)
        except DoesNotFitError:
            print(f"{dtype} {name} was killed, most likely since memory ran out, and is left out", flush=True)
    return {name: median(values) for name, values in measured.items()}


def measure_rollouts(
    dtype: str, num_questions: int, num_tokens: int, num_rounds: int, options: argparse.Namespace
) -> dict[str, float]:
    """Return medians of seconds of our rollouts, of other tools' generation and of the floors, in turn."""
    policy = open_policy(dtype)
    policy = dataclasses.replace(policy, end_token_ids=torch.tensor([NO_TOKEN]))
    plain = dataclasses.replace(policy, model=copy.deepcopy(policy.model).to(policy.compute_dtype))
    prompts = [question.prompt_ids for question in make_questions(policy)[:num_questions]]
    rows = [prompt for prompt in prompts for _ in range(ROLLOUTS)]
    sampler = Sampler(1.0, torch.Generator().manual_seed(0))
    num_inputs = PROMPT_TOKENS + ROLLOUTS * (num_tokens - 1)
    work: dict[str, Callable[[], object]] = {
        "rollout": lambda: generate(policy, rows, num_tokens, sampler),
        "transformers": lambda: generate_by_transformers(plain, rows, num_tokens, NO_TOKEN),
        "rollout_floor": lambda: decode_products(plain, len(rows), num_tokens),
        "update_floor": lambda: train_products(plain, num_inputs, ROLLOUTS * num_tokens, num_questions),
    }
    timed = {name: partial(processor_seconds, action) for name, action in work.items()}
    seconds: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        if options.llama_cpp:
            model = options.llama_cpp / ("F16.gguf" if dtype == "float32" else "Q8_0.gguf")
            program = options.llama_cpp / "llama-batched-bench"
            timed["llama_cpp"] = lambda: decode_by_llama_cpp(program, model, len(rows), num_tokens)
        if options.vllm_python:
            folder = stack.enter_context(TemporaryDirectory())
            policy.model.save_pretrained(folder)
            sizes = (folder, dtype, num_questions, num_tokens)
            vllm = open_contender(*sizes, python=options.vllm_python, module="bench.other_rollouts")
            contender = stack.enter_context(vllm)
            timed["vllm"] = lambda: contender.do("generate")["s"]
        for _ in range(num_rounds):
            for name, measure in timed.items():
                seconds[f"{name}_s"].append(measure())
                print(f"{dtype} {name:<14}{seconds[f'{name}_s'][-1]:8.1f} s", flush=True)
    return {name: median(values) for name, values in seconds.items()}


def processor_seconds(action: Callable[[], object]) -> float:
    """Return the processor time that an action takes."""
    began_at = time.process_time()
    action()
    return time.process_time() - began_at


@torch.inference_mode()
def decode_products(policy: PolicyModel, num_rows: int, num_times: int) -> None:
    """Do the matrix products of decoding so many rows, so often, with those of the logits."""
    for weight in [pack_matrix(weight) for weight in matrices(policy)]:
        inputs = torch.ones(num_rows, weight.shape[1], dtype=policy.compute_dtype)
        for _ in range(num_times):
            linear(inputs, weight)


def train_products(policy: PolicyModel, num_tokens: int, num_predicted: int, num_times: int) -> None:
    """Do the matrix products of so many tokens' forward and backward pass, so often, with those of the logits."""
    *layers, embedding = matrices(policy)
    for _ in range(num_times):
        for size, weight in [*((num_tokens, weight) for weight in layers), (num_predicted, embedding)]:
            inputs = torch.ones(size, weight.shape[1], dtype=weight.dtype, requires_grad=True)
            linear(inputs, weight.requires_grad_()).backward(torch.ones(size, weight.shape[0], dtype=weight.dtype))
            weight.grad = None


def matrices(policy: PolicyModel) -> list[torch.Tensor]:
    """Return the weights of the layers' products, and the output embedding."""
    layers = [weight.detach() for weight in policy.model.model.layers.parameters() if weight.ndim == 2]
    return [*layers, policy.model.get_input_embeddings().weight.detach()]


if __name__ == "__main__":
    main()
