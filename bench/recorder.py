"""The recorder's cost a step: what `log` takes for a step of rollouts, beside one of 150 s and a fast one.

`python -m bench.recorder [--short]` prints one line of JSON.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from exgrpo_core import recording

LONG_STEP_SECONDS = 150.0
STEPS = {"long": (1024, 2000, 4000), "fast": (64, 0, 300)}
"""Trajectories, tokens with their values, characters."""


def measure(kind: str, folder: Path, num_steps: int) -> float:
    """Return the median processor time of a step's call, in seconds."""
    num, num_tokens, num_characters = STEPS[kind]
    generator = np.random.default_rng(0)
    response = ("so 12 + 7 = 19, " * num_characters)[:num_characters]
    tokens = {
        "token_ids": generator.integers(0, 150_000, num_tokens),
        "log_probs": generator.normal(size=num_tokens).astype("float32"),
        "entropies": generator.random(num_tokens, dtype="float32"),
    }
    rows = [
        {"prompt": f"Question {index // 8}: what is 12 + 7?", "response": response, "reward": float(index % 2)}
        | (tokens if num_tokens else {"num_tokens": 80})
        for index in range(num)
    ]
    metrics = {f"metric/{index}": float(index) for index in range(60)}
    seconds = []
    with recording.start(kind, {}, folder) as run:
        for step in range(num_steps):
            began = time.thread_time()
            run.log(step, metrics, trajectories=rows)
            seconds.append(time.thread_time() - began)
    return statistics.median(seconds)


def main() -> None:
    """Print what a step costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    num_steps = 5 if parser.parse_args().short else 15
    with tempfile.TemporaryDirectory() as folder:
        long, fast = (measure(kind, Path(folder), num_steps) for kind in STEPS)
    print(f"1,024 rollouts of 2,000 tokens: {long:.3f} s, {100 * long / LONG_STEP_SECONDS:.3f}% of a step of 150 s")
    print(f"64 rollouts of 300 characters: {1000 * fast:.2f} ms")
    print(json.dumps({"long_seconds": long, "long_share": long / LONG_STEP_SECONDS, "fast_seconds": fast}))


if __name__ == "__main__":
    main()
