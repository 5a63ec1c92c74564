"""The demo's runs end alike on processors with and without AVX512: torch is told to use either."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.slow

RUN = """
import json
import tempfile
from pathlib import Path

import torch

from bench.crossover import score
from exgrpo_core import ExGRPOState, exgrpo_step
from jobs.specs.train import load_preset
from jobs.training.composition import open_components

torch.set_num_threads(1)
spec = load_preset("chains-exgrpo")
with tempfile.TemporaryDirectory() as folder, open_components(spec) as components:
    scores = [score(spec, components, 8)]
    state = ExGRPOState.create(Path(folder), components.questions, spec.algorithm)
    for _ in range(20):
        exgrpo_step(state, components.engine, spec.algorithm)
    state.replay_buffer.close()
    scores.append(score(spec, components, 8))
print(json.dumps([torch.backends.cpu.get_cpu_capability(), *scores]))
"""


def run_with(capability: str) -> tuple[str, np.ndarray]:
    """Return what torch used, and correctness rates (start and step 20, questions)."""
    done = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, timeout=600, check=True,
        env=os.environ | {"ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    used, *num_correct = json.loads(done.stdout.splitlines()[-1])
    return used, np.array(num_correct) / 8


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="the processor has no AVX512")
def test_scores_are_within_sampling_error_with_and_without_avx512():
    narrow, wide = run_with("avx2"), run_with("avx512")
    assert [narrow[0], wide[0]] == ["AVX2", "AVX512"]
    gaps = wide[1] - narrow[1]
    errors = gaps.std(axis=1, ddof=1) / np.sqrt(gaps.shape[1])
    assert (np.abs(gaps.mean(axis=1)) <= 3 * errors + 1e-9).all(), (gaps.mean(axis=1), errors)
    # Reinforcement raised the score on both.
    assert (np.diff([narrow[1].mean(axis=1), wide[1].mean(axis=1)]) > 0).all()
