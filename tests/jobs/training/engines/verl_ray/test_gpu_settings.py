"""The settings for GPUs, read by verl's and transformers' classes as a worker reads them; no device is needed."""

import warnings

import pytest

from exgrpo.jobs.specs.settings import apply_settings
from exgrpo_core.verl_plugin.attention_kernel import KERNEL
from tests.jobs.training.engines.verl_ray.engines import save_tiny_model, tiny_spec

pytestmark = [pytest.mark.verl, pytest.mark.slow]


@pytest.fixture
def read(tmp_path):
    warnings.simplefilter("ignore")
    from verl.utils.config import omega_conf_to_dataclass

    from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import ENGINE_OVERRIDES, verl_overrides
    from exgrpo_core.verl_plugin.session import compose_config

    def read(*changes: str) -> dict:
        spec = apply_settings(tiny_spec(save_tiny_model(tmp_path / "model"), 1), ["model.device=cuda", *changes])
        parts = compose_config([*ENGINE_OVERRIDES, *verl_overrides(spec, tmp_path / "run")]).actor_rollout_ref
        return {name: omega_conf_to_dataclass(parts[name]) for name in ("model", "actor", "rollout")}

    with warnings.catch_warnings():
        yield read


def load(hf_config):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_config(hf_config)


def test_pytorchs_attention_loads_without_any_package(read):
    found = read("verl.attention=sdpa")
    assert load(found["model"].hf_config).config._attn_implementation == "sdpa"
    assert found["model"].use_fused_kernels
    assert found["actor"].fsdp_config.strategy == "fsdp2"


def test_flash_attention_loads_by_the_kernel_that_is_fetched_and_by_nothing_else(read, monkeypatch):
    from transformers import modeling_utils

    config = read()["model"].hf_config
    with pytest.raises(ImportError, match="FlashAttention2 has been toggled on"):
        load(config)
    loaded = []
    monkeypatch.setattr(modeling_utils, "is_kernels_available", lambda: True)
    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", lambda name, **_: loaded.append(name))
    load(config)
    assert set(loaded) == {KERNEL}
