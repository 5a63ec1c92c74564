"""What the pins for GPUs do on a machine without one; runs in their environment alone (`make test-verl-gpu-pins`)."""

import json
import os
import platform
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
import torch

from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.training.engines.embedded.model import wrap_model
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Scoring
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.verl_plugin.attention_kernel import KERNEL, REVISION, use_cached_kernel
from tests.conftest import REPOSITORY
from tests.jobs.training.engines.contract import stored, training_rows
from tests.jobs.training.engines.embedded.engines import CONFIG, make_engine, make_questions
from tests.jobs.training.engines.tiny_models import END, SIZES, VOCABULARY_SIZE, build_model, tiny_tokenizer
from tests.jobs.training.engines.verl_ray.engines import NoRollouts, save_tiny_model, tiny_spec

pytestmark = [pytest.mark.verl_gpu_pins, pytest.mark.slow, pytest.mark.timeout(1200)]

NUM_TOKENS = 96
MOST_BFLOAT16_GAP = 0.1
"""Nats a token, on average, between a model in bfloat16 and in float32: its weights are random and large."""
NEEDS_A_DEVICE = {
    "trainer.device": "cpu",
    "++ray_kwargs.ray_init.num_gpus": 1,
}
"""All that differs from a worker's settings on a GPU."""


@pytest.fixture(autouse=True)
def _cpu_platform():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def build(dtype: torch.dtype) -> Any:
    """Return a model that computes as verl's workers do on GPUs: packed rows, log-probs by the fused kernels."""
    from transformers import AutoModelForCausalLM, Qwen2Config
    from verl.models.transformers.monkey_patch import apply_monkey_patch

    config = Qwen2Config(**SIZES, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").train()
    # Without a device torch has no state of its random numbers to keep.
    settings = {"use_reentrant": False, "preserve_rng_state": False}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
    apply_monkey_patch(model, use_remove_padding=True, use_fused_kernels=True, fused_kernels_backend="torch")
    return model


def test_the_environment_has_the_pins_for_gpus():
    lines = (REPOSITORY / "requirements" / "constraints-verl-gpu.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    assert {name: version(name) for name in pins} == pins
    assert torch.version.cuda == "13.0"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_forward_of_verls_worker_traces_on_a_fake_gpu(dtype):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        tokens = (torch.arange(NUM_TOKENS) * 7 % VOCABULARY_SIZE)[None].to("cuda")
        positions = torch.arange(NUM_TOKENS // 2).repeat(2)[None].to("cuda")
        settings = {"temperature": 1.0, "use_cache": False, "return_dict": True}
        output = build(dtype)(input_ids=tokens, position_ids=positions, shift_labels=tokens.roll(-1, 1), **settings)
        # Entropies have the model's type; log-probs, of which ratios are made, are float32 always.
        for values, expected in ((output.log_probs, torch.float32), (output.entropy, dtype)):
            assert (values.device.type, values.dtype, values.numel()) == ("cuda", expected, NUM_TOKENS)
            assert values.requires_grad


def test_forward_of_the_embedded_engine_traces_on_a_fake_gpu(monkeypatch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    row = np.arange(2, 18, dtype=np.int32)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("cuda"):
            model = build_model("qwen2_tied")
        # Fake parameters cannot be moved.
        monkeypatch.setattr(torch.nn.Module, "to", lambda module, **_: module)
        policy = wrap_model(model, tiny_tokenizer(), torch.device("cuda"))
        scores = policy.backend.score([TokenSequence(row[:6], row[6:])], Scoring(1.0))
        assert scores.log_probs.device.type == "cuda"


def test_transformers_loads_the_kernel_that_was_fetched_without_the_hub(tmp_path, monkeypatch):
    from transformers.integrations.hub_kernels import load_and_register_attn_kernel

    folder = tmp_path / f"kernels--{KERNEL.replace('/', '--')}"
    build = folder / "snapshots" / "abc" / "build" / f"torch211-cxx11-cu130-{platform.machine()}-linux"
    build.mkdir(parents=True)
    described = {"name": "flash-attn2", "id": "toy", "version": 2, "license": "BSD", "python-depends": []}
    (build / "metadata.json").write_text(json.dumps(described | {"backend": {"type": "cuda"}}))
    (build / "__init__.py").write_text("flash_attn_varlen_func = flash_attn_func = print")
    (folder / "refs").mkdir()
    (folder / "refs" / REVISION).write_text("abc")
    monkeypatch.setattr(os, "environ", {**os.environ, "KERNELS_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"})
    use_cached_kernel()
    assert load_and_register_attn_kernel(KERNEL).__file__ == str(build / "__init__.py")


def test_a_worker_starts_scores_and_learns_with_the_settings_of_gpus(tmp_path):
    from exgrpo.jobs.training.engines.verl_ray.engine import WorkbenchVerlEngine
    from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import ENGINE_OVERRIDES, verl_overrides
    from exgrpo_core.verl_plugin.session import compose_config, open_trainer

    spec = tiny_spec(save_tiny_model(tmp_path / "model"), 1)
    spec = apply_settings(spec, ["model.device=cuda", "verl.attention=sdpa"])
    manager = f"{NoRollouts.__module__}.{NoRollouts.__qualname__}"
    words = [
        *ENGINE_OVERRIDES,
        *verl_overrides(spec, tmp_path / "run"),
        *(f"{name}={value}" for name, value in NEEDS_A_DEVICE.items()),
        f"+actor_rollout_ref.rollout.agent.agent_loop_manager_class={manager}",
    ]
    other = make_engine()
    groups = other.rollout([RolloutRequest(question, 4) for question in make_questions()[:4]])
    candidates = stored(groups)
    with open_trainer(compose_config(words)) as trainer:
        engine = WorkbenchVerlEngine(trainer, [END], spec.algorithm, seed=0)
        mine, theirs = engine.entropies(*candidates), other.entropies(*candidates)
        gaps = np.concatenate([np.abs(a - b) for a, b in zip(mine.log_probs, theirs.log_probs, strict=True)])
        assert 0.0 < gaps.mean() < MOST_BFLOAT16_GAP
        rows = training_rows(groups, [1.0, -0.5, -0.75, 0.25] * 4)
        metrics = engine.update([MiniBatch(rows, 0)], build_objective(CONFIG, is_replay_open=True))
    assert 0.0 < metrics["optim/gradient_norm"] < np.inf
