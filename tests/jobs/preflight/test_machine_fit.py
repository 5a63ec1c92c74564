from types import SimpleNamespace

import pytest

from jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from jobs.machine.hardware import Gpu
from jobs.preflight import machine_fit
from jobs.preflight.machine_fit import check_disk, check_embedded_device, check_machine, check_memory, check_rollout
from jobs.specs.settings import apply_settings
from jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec
from jobs.specs.verl import EXTERNAL_MODULES_VARIABLE

GIB = 1024**3


@pytest.fixture
def machine(monkeypatch):
    """Return a function that gives this machine memory, disk and GPUs."""

    def have(memory: int = 24 * GIB, disk: int = 74 * GIB, gpus: tuple[int, ...] = ()) -> None:
        cards = [Gpu(index, "H100", 0.0, 0, size) for index, size in enumerate(gpus)]
        monkeypatch.setattr(machine_fit, "list_gpus", lambda: cards)
        monkeypatch.setattr(machine_fit.psutil, "virtual_memory", lambda: SimpleNamespace(total=memory))
        monkeypatch.setattr(machine_fit.shutil, "disk_usage", lambda _: SimpleNamespace(free=disk))

    return have


def refuses(check, *arguments) -> tuple[str, ...]:
    """Return the fields of the refusal that a check raises, none if it passes."""
    try:
        check(*arguments)
    except SpecError as error:
        return error.fields or (str(error),)
    return ()


def test_seven_billion_parameters_do_not_train_in_the_memory_of_a_laptop(machine):
    machine()
    spec = apply_settings(load_preset("paper-exgrpo"), ["engine=embedded"])
    with pytest.raises(SpecError, match=r"121\.8 GB .* 25\.8 GB"):
        check_memory(spec)
    check_memory(TrainSpec())


def test_state_that_each_gpu_cannot_hold_is_refused_unless_it_is_offloaded(machine):
    spec = load_preset("paper-exgrpo")
    machine(gpus=(80 * GIB,) * 8)
    assert refuses(check_memory, spec) == ()
    machine(gpus=(8 * GIB,) * 8)
    assert refuses(check_memory, spec) == ("model.source",)
    overrides = "verl.overrides=[actor_rollout_ref.actor.fsdp_config.optimizer_offload=True]"
    assert refuses(check_memory, apply_settings(spec, [overrides])) == ()


def test_checkpoints_that_the_disk_has_no_room_for_are_refused(machine, tmp_path):
    spec = load_preset("paper-exgrpo")
    machine(disk=500 * GIB)
    assert refuses(check_disk, spec, tmp_path / "runs") == ()
    machine()
    with pytest.raises(SpecError, match=r"471\.\d GB .* 79\.5 GB"):
        check_disk(spec, tmp_path / "runs")


def test_a_gpu_that_is_asked_for_and_not_there_is_refused(machine):
    machine()
    spec = apply_settings(TrainSpec(), ["model.device=cuda"])
    assert refuses(check_embedded_device, spec) == ("model.device",)
    machine(gpus=(80 * GIB,))
    assert refuses(check_embedded_device, spec) == ()


@pytest.mark.parametrize(("version", "fields"), [("null", ("verl.gpus_per_node",)), ('"0.11.0"', ())])
def test_vllm_has_to_be_in_verls_environment_to_generate_with_it(tmp_path, monkeypatch, version, fields):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{{\"vllm\": {version}}}'\n")
    python.chmod(0o755)
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(python))
    assert refuses(check_rollout, load_preset("paper-exgrpo")) == fields


def test_verl_needs_gpus_unless_a_module_from_outside_gives_it_another_platform(monkeypatch):
    spec = parse_spec({"engine": "verl", "model": {"device": "cpu"}}, "test")
    assert refuses(check_machine, spec) == ()
    monkeypatch.delenv(EXTERNAL_MODULES_VARIABLE)
    assert refuses(check_machine, spec) == ("model.device",)
