import os
import platform
import re
import sys
import sysconfig
import tomllib
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from exgrpo.jobs.machine import gpu_needs, hardware
from exgrpo.jobs.machine.engine_environments import (
    GPU_PINS,
    PROJECT_ROOT,
    VERL_PACKAGES,
    EngineEnvironmentError,
    verl_pins,
)
from exgrpo.jobs.machine.gpu_needs import FETCH_COMMAND, GpuNeeds, missing_packages, needs_of, torch_cuda
from exgrpo_core.verl_plugin.attention_kernel import KERNEL, REVISION, cached_kernel, use_cached_kernel

pytestmark = pytest.mark.slow

DOCUMENT = (PROJECT_ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


def test_pins_the_extra_the_looked_for_packages_and_the_document_agree():
    (pins,) = [pins for pins in verl_pins() if pins.name == GPU_PINS]
    extras = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package in ("vllm", "kernels"):
        assert package in VERL_PACKAGES
        row = rf"^\| {package} \|.*\| {re.escape(pins.versions[package])} \|$"
        assert re.search(row, DOCUMENT, re.M | re.I), package
    packages = ("vllm", "kernels", "cupy-cuda13x")
    assert extras["verl-gpu"] == [f"{package}=={pins.versions[package]}" for package in packages]
    assert set(VERL_PACKAGES) <= pins.versions.keys()
    assert FETCH_COMMAND in DOCUMENT


def test_kernel_is_the_one_that_transformers_falls_back_to():
    from transformers.modeling_flash_attention_utils import FLASH_ATTN_KERNEL_FALLBACK

    assert FLASH_ATTN_KERNEL_FALLBACK["flash_attention_2"] == KERNEL


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("KERNELS_CACHE", raising=False)
    return tmp_path


FOLDER = "kernels--kernels-community--flash-attn2"


def add_build(cache, torch_version):
    name = f"torch{torch_version}-cxx11-cu130-{platform.machine()}-{platform.system().lower()}"
    folder = cache / FOLDER / "snapshots" / "abc" / "build" / name / "flash_attn2"
    folder.mkdir(parents=True)
    (cache / FOLDER / "refs").mkdir(exist_ok=True)
    (cache / FOLDER / "refs" / REVISION).write_text("abc")
    (folder / "__init__.py").touch()


def test_kernel_is_there_once_its_build_for_this_torch_is_in_the_cache_and_then_loaded(cache, monkeypatch):
    major, minor, _ = version("torch").split(".", 2)
    add_build(cache, f"{major}{int(minor) + 1}")
    assert cached_kernel() is None
    add_build(cache, f"{major}{minor}")
    assert cached_kernel() == cache / FOLDER / "snapshots" / "abc"
    monkeypatch.setattr(os, "environ", {**os.environ})
    use_cached_kernel()
    assert os.environ["LOCAL_KERNELS"] == f"{KERNEL}={cached_kernel()}"


def test_missing_compiler_and_headers_are_named_as_packages(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    assert missing_packages() == ["gcc", f"python3.{sys.version_info.minor}-dev"]
    (tmp_path / "cc").touch(mode=0o755)
    (tmp_path / "Python.h").touch()
    assert missing_packages() == []


def test_only_flash_needs_the_kernel():
    assert GpuNeeds((), kernel="abc").problems("flash") == []
    assert GpuNeeds((), kernel=None).problems("sdpa") == []
    (kernel,), (packages,) = (GpuNeeds(*needs).problems("flash") for needs in (((), None), (("gcc",), "abc")))
    assert FETCH_COMMAND in kernel
    assert "gcc" in packages


@pytest.mark.parametrize(
    ("built_for", "driver", "is_too_old"),
    [("13.0", 12080, True), ("13.1", 13000, False), (None, 12080, False), ("13.0", None, False)],
)
def test_a_driver_older_than_the_cuda_of_torch_is_told(monkeypatch, built_for, driver, is_too_old):
    def version_of_driver():
        if driver is None:
            raise hardware.pynvml.NVMLError(hardware.pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        return driver

    for name in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(hardware.pynvml, name, lambda: None)
    monkeypatch.setattr(hardware.pynvml, "nvmlSystemGetCudaDriverVersion", version_of_driver)
    problems = GpuNeeds((), kernel="abc", cuda=built_for).problems("flash")
    assert [problem.startswith("the NVIDIA driver is for CUDA 12.8 and") for problem in problems] == [True] * is_too_old


def test_torch_says_without_an_import_which_cuda_it_is_built_for(monkeypatch, tmp_path):
    import torch

    assert torch_cuda() == torch.version.cuda
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n")
    found = SimpleNamespace(origin=str(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr(gpu_needs.importlib.util, "find_spec", lambda _: found)
    assert torch_cuda() == "13.0"


@pytest.mark.usefixtures("cache")
def test_another_interpreter_is_asked():
    assert needs_of(sys.executable).kernel is None
    with pytest.raises(EngineEnvironmentError):
        needs_of("/bin/false")
