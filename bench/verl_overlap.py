"""What `rollouts_ahead` does to idle GPUs, simulated: taking turns on all of them, or each part on GPUs of its own.

Run `python -m bench.verl_overlap`; `--short` for few steps. Nothing runs on a GPU. Every step draws lengths of
responses, log-normal and cut at 8,192 tokens, and gives each response to one of the model's copies at random. A copy
decodes its responses together: a pass over the weights costs the time to read them, and a little for each response that
it goes on with, so the longest ones end alone. All copies wait for the slowest; the update is balanced by tokens.
H100s; 7B on 8 GPUs and 32B on 128, with batches as in `docs/scale.md`.

In turns a step is generation, then scoring and update. Ahead, it is the scoring of this step's rollouts, then the
longer of generation and update: the next rollouts are begun once this step's are scored and the weights are sent
(`exgrpo_core/algorithm.py`). GPUs are divided so that steps are shortest. A GPU is idle while its copy has nothing to
decode, nothing to train, or weights pass. Unused is more: also what decoding with few responses takes beyond the time
that its tokens take in full passes.
"""

import argparse
import heapq
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from bench.report import Figure, report
from jobs.studies.running import FLOPS_A_SECOND, TRAINING_FLOPS

LONGEST = 8192
NUM_STEPS, NUM_SHORT_STEPS = 60, 4
DISTRIBUTIONS = {"even": (1500, 0.4), "typical": (1500, 0.8), "long_tailed": (1000, 1.5)}
"""Median tokens of a response, and the standard deviation of their logarithm."""
BYTES_A_SECOND = 2.3e12
"""Of memory: 70% of an H100's."""
DECODE_FLOPS_A_SECOND = 3e14
LAUNCH_SECONDS = 3e-3
"""Of a decoding pass, beside reading weights and caches."""
MOST_AT_ONCE = 256
"""Responses that a copy decodes together; the others wait, as `max_num_seqs` has it."""
SEND_SECONDS = 4.0
"""To send weights to GPUs that generate, or to wake them up and put them to sleep where they take turns."""
SCORING_SHARE = 2 / TRAINING_FLOPS
"""Of scoring and update: one forward pass over fresh rollouts, before which no others are begun."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A model on some GPUs, and a step's rollouts."""

    num_gpus: int
    parameters: float
    num_rollouts: int
    tensor_parallel: int
    cache_bytes: float
    """Of a token in the KV cache."""

    def pass_seconds(self) -> tuple[float, float]:
        """Return the seconds of a decoding pass, and those for each response in it, at a context of 2,000 tokens."""
        weights = 2 * self.parameters / self.tensor_parallel / BYTES_A_SECOND
        cache = 2000 * self.cache_bytes / self.tensor_parallel / BYTES_A_SECOND
        return LAUNCH_SECONDS + weights, cache + 2 * self.parameters / self.tensor_parallel / DECODE_FLOPS_A_SECOND

    def full_seconds(self, num_tokens: int) -> float:
        """Return GPU-seconds of decoding in passes with as many responses as go at once."""
        of_pass, of_response = self.pass_seconds()
        return num_tokens * self.tensor_parallel * (of_response + of_pass / MOST_AT_ONCE)

    def update_seconds(self, num_tokens: int, num_gpus: int) -> float:
        """Return the seconds of scoring and update."""
        return num_tokens * self.parameters * TRAINING_FLOPS / FLOPS_A_SECOND / num_gpus


SETTINGS = (Setting(8, 7.6e9, 128 * 8, 1, 57e3), Setting(128, 32.8e9, 512 * 16, 4, 262e3))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Shares of all GPUs' time, without anything to do and without work in full passes, and the seconds of a step."""

    idle: float
    unused: float
    step_seconds: float


def decode_seconds(lengths: NDArray[np.int64], setting: Setting) -> float:
    """Return how long a copy decodes these responses (n,), of which so many go on at once."""
    of_pass, of_response = setting.pass_seconds()
    waiting = iter(lengths.tolist())
    ends = [length for _, length in zip(range(MOST_AT_ONCE), waiting, strict=False)]
    heapq.heapify(ends)
    num_passes, seconds = 0, 0.0
    while ends:
        seconds += (ends[0] - num_passes) * (of_pass + of_response * len(ends))
        num_passes = ends[0]
        following = next(waiting, None)
        if following is None:
            heapq.heappop(ends)
        else:
            heapq.heapreplace(ends, num_passes + following)
    return seconds


def generation(lengths: NDArray[np.int64], setting: Setting, num_gpus: int) -> NDArray[np.float64]:
    """Return the seconds that each of the model's copies on these GPUs decodes."""
    copies = np.array_split(lengths, num_gpus // setting.tensor_parallel)
    return np.array([decode_seconds(part, setting) for part in copies])


def in_turns(setting: Setting, lengths: NDArray[np.int64]) -> StepTimes:
    """Return a step in which all GPUs generate, then train."""
    decoding = generation(lengths, setting, setting.num_gpus)
    update = setting.update_seconds(int(lengths.sum()), setting.num_gpus)
    seconds = SEND_SECONDS + float(decoding.max()) + update
    used = setting.full_seconds(int(lengths.sum())) / setting.num_gpus + update
    return StepTimes(1.0 - (float(decoding.mean()) + update) / seconds, 1.0 - used / seconds, seconds)


def ahead(
    setting: Setting, lengths: NDArray[np.int64], num_generating: int, decoding: NDArray[np.float64]
) -> StepTimes:
    """Return a step that trains on `lengths` while the next rollouts are decoded, in so many seconds a copy."""
    num_training = setting.num_gpus - num_generating
    update = setting.update_seconds(int(lengths.sum()), num_training)
    scoring = SCORING_SHARE * update
    seconds = SEND_SECONDS + scoring + max(float(decoding.max()), update - scoring)
    total, training = setting.num_gpus * seconds, num_training * update
    busy, used = num_generating * float(decoding.mean()) + training, setting.full_seconds(int(lengths.sum())) + training
    return StepTimes(1.0 - busy / total, 1.0 - used / total, seconds)


def mean_of(steps: list[StepTimes]) -> StepTimes:
    """Return the mean step, and the shares of all steps together."""
    shares, seconds = np.split(np.array([astuple(step) for step in steps]), [2], axis=1)
    idle, unused = np.average(shares, axis=0, weights=seconds[:, 0])
    return StepTimes(float(idle), float(unused), float(seconds.mean()))


def simulate(setting: Setting, median: float, sigma: float, num_steps: int) -> tuple[StepTimes, StepTimes, int]:
    """Return the mean step in turns, that of the best division, and its number of GPUs that generate."""
    rng = np.random.default_rng(0)
    draws = rng.lognormal(np.log(median), sigma, (num_steps + 1, setting.num_rollouts))
    steps = np.clip(np.rint(draws), 1, LONGEST).astype(np.int64)
    divided = {}
    unit = max(setting.num_gpus // 16, setting.tensor_parallel)
    for num_generating in range(unit, setting.num_gpus, unit):
        decoding = [generation(lengths, setting, num_generating) for lengths in steps[1:]]
        pairs = zip(steps[:-1], decoding, strict=True)
        divided[num_generating] = mean_of([ahead(setting, lengths, num_generating, then) for lengths, then in pairs])
    best = min(divided, key=lambda number: divided[number].step_seconds)
    return mean_of([in_turns(setting, lengths) for lengths in steps[1:]]), divided[best], best


def figures_of(num_steps: int) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of each number of GPUs and distribution, and print them."""
    for setting in SETTINGS:
        for name, (median, sigma) in DISTRIBUTIONS.items():
            turns, apart, num_generating = simulate(setting, median, sigma, num_steps)
            where = f"{setting.num_gpus}_gpus/{name}"
            for quantity in (field.name for field in fields(StepTimes)):
                before, after = getattr(turns, quantity), getattr(apart, quantity)
                print(f"{where}/{quantity}: {before:.4g} -> {after:.4g}", flush=True)
                yield f"{where}/{quantity}_before", before
                yield f"{where}/{quantity}_after", after
            yield f"{where}/generating_gpus", num_generating


def main() -> None:
    """Simulate and print the figures and the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="few steps")
    num_steps = NUM_SHORT_STEPS if parser.parse_args().short else NUM_STEPS
    report("verl_overlap", dict(figures_of(num_steps)), {})


if __name__ == "__main__":
    main()
