import re
from functools import partial
from types import SimpleNamespace

import pytest

from exgrpo.jobs.actions.evaluations import EvaluationLook, check_fit
from exgrpo.jobs.actions.preflight import looks, machine_fit, memory_estimate
from exgrpo.jobs.actions.preflight.machine_fit import (
    check_engine,
    check_machine,
    check_memory,
    check_parallelism,
    find_disk_shortage,
)
from exgrpo.jobs.actions.preflight.memory_estimate import estimate_resources
from exgrpo.jobs.actions.preflight.resolution import resolve
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from exgrpo.jobs.machine.hardware import Gpu
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec
from exgrpo_core.verl_plugin.settings import EXTERNAL_MODULES_VARIABLE

GIB = 1024**3


@pytest.fixture
def machine(monkeypatch):
    """Return a function that gives this machine memory, disk and GPUs."""

    def have(memory: int = 24 * GIB, disk: int = 74 * GIB, gpus: tuple[int, ...] = ()) -> None:
        cards = [Gpu(index, "H100", 0.0, 0, size) for index, size in enumerate(gpus)]
        monkeypatch.setattr(looks, "list_gpus", lambda: cards)
        monkeypatch.setattr(memory_estimate, "list_gpus", lambda: cards)
        monkeypatch.setattr(machine_fit.psutil, "virtual_memory", lambda: SimpleNamespace(total=memory))
        monkeypatch.setattr(machine_fit.shutil, "disk_usage", lambda _: SimpleNamespace(free=disk))

    return have


def refuses(check, spec) -> tuple[str, ...]:
    """Return the fields of the refusal that a check of a training run raises, none if it passes."""
    return refusal_of(lambda: check(looks.look_at(spec)))


def refusal_of(check) -> tuple[str, ...]:
    try:
        check()
    except SpecError as error:
        return error.fields or (str(error),)
    return ()


def test_seven_billion_parameters_do_not_train_in_the_memory_of_a_laptop(machine):
    machine()
    spec = apply_settings(load_preset("paper-exgrpo"), ["engine=embedded"])
    with pytest.raises(SpecError, match=r"121\.8 GB .* 25\.8 GB"):
        check_memory(looks.look_at(spec))
    check_memory(looks.look_at(TrainSpec()))
    machine(gpus=(500 * GIB, 8 * GIB))
    with pytest.raises(SpecError, match=r"121\.8 GB .* 8\.6 GB"):
        check_memory(looks.look_at(spec))


@pytest.mark.parametrize(
    ("settings", "gib", "refused_for"),
    [
        ([], 79.6, ""),
        (["verl.gpu_memory_utilization=0.8"], 79.6, ""),  # the paper's
        ([], 24, "an update"),
        (["verl.gpus_per_node=1"], 79.6, "an update"),
        (["verl.gpu_memory_utilization=0.3"], 48, "weights and cache of one sequence"),
        (["verl.gpu_memory_utilization=0.9"], 79.6, "generation next to"),
        (["verl.gpu_memory_utilization=0.3", "verl.tensor_parallel=2"], 48, ""),
    ],
)
def test_both_peaks_are_compared_with_the_gpus_that_are_there_or_named(machine, tmp_path, settings, gib, refused_for):
    spec = apply_settings(load_preset("paper-exgrpo"), settings)
    machine(gpus=(round(gib * GIB),) * 8)
    shortage = memory_estimate.estimate_memory(looks.model_shape(spec.model.source), spec).sure_shortage
    assert shortage.startswith(refused_for)
    assert bool(shortage) is bool(refused_for)
    fields = ("model.source",) if refused_for else ()
    assert refuses(check_memory, spec) == fields
    machine(gpus=(8 * GIB,) * 8)
    assert refuses(check_memory, spec) == ("model.source",)
    named = apply_settings(spec, [f"verl.gpu_gib={gib}"])
    assert refuses(check_memory, named) == fields
    # Of a named GPU it is no matter of this machine: scripts for others are refused too.
    elsewhere = [item.mistake.fields for item in resolve(named, tmp_path).refusals if not item.is_local]
    assert elsewhere == ([fields] if fields else [])
    overrides = "verl.overrides=[actor_rollout_ref.actor.fsdp_config.optimizer_offload=True]"
    assert refuses(check_memory, apply_settings(named, [overrides])) == ()
    machine()
    assert refuses(check_memory, spec) == ()


def test_where_only_the_upper_bound_exceeds_a_gpu_a_notice_says_so(machine, tmp_path):
    spec = load_preset("paper-exgrpo")  # an update is said to need 32.6 GiB
    for gib, has_notice in ((30, True), (40, False)):
        machine(gpus=(gib * GIB,) * 8)
        assert len(check_memory(looks.look_at(spec))) == has_notice
        assert set(check_memory(looks.look_at(spec))) <= set(resolve(spec, tmp_path).notices)


def test_checkpoints_that_the_disk_has_no_room_for_are_named(machine, tmp_path):
    spec = load_preset("paper-exgrpo")
    machine(disk=500 * GIB)
    needs = estimate_resources(spec, looks.model_shape(spec.model.source))
    assert find_disk_shortage(needs, tmp_path / "runs") == ""
    machine()
    assert re.search(r"471\.\d GB .* 79\.5 GB", find_disk_shortage(needs, tmp_path / "runs"))


def test_a_gpu_that_is_asked_for_and_not_there_is_refused(machine):
    machine()
    spec = apply_settings(TrainSpec(), ["model.device=cuda"])
    assert refuses(check_machine, spec) == ("model.device",)
    machine(gpus=(80 * GIB,))
    assert refuses(check_machine, spec) == ()


@pytest.mark.parametrize(("version", "fields"), [("null", ("verl.gpus_per_node",)), ('"0.11.0"', ())])
def test_vllm_has_to_be_in_verls_environment_to_generate_with_it(tmp_path, monkeypatch, version, fields):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{{\"vllm\": {version}}}'\n")
    python.chmod(0o755)
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(python))
    assert refuses(check_engine, load_preset("paper-exgrpo")) == fields


def test_verl_needs_gpus_unless_a_module_from_outside_gives_it_another_platform(monkeypatch):
    spec = parse_spec({"engine": "verl", "model": {"device": "cpu"}}, "test")
    assert refuses(check_machine, spec) == ()
    monkeypatch.delenv(EXTERNAL_MODULES_VARIABLE)
    assert refuses(check_machine, spec) == ("model.device",)


ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    "override",
    [
        f"{ACTOR}.ulysses_sequence_parallel_size=2",
        f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=2",
        f"+{ACTOR}.fsdp_config={{ulysses_sequence_parallel_size: 2}}",
        "actor_rollout_ref.ref.ulysses_sequence_parallel_size=2",
    ],
)
@pytest.mark.parametrize("settings", [["verl.attention=sdpa"], ["model.device=cpu"]])
def test_parts_of_sequences_are_refused_with_an_attention_that_sees_a_part_alone(settings, override):
    spec = load_preset("paper-exgrpo")
    verl = spec.verl.model_copy(update={"overrides": (override,)})
    split = spec.model_copy(update={"verl": verl})
    assert refuses(check_parallelism, split) == ()
    assert refuses(check_parallelism, apply_settings(split, settings)) == ("verl.overrides",)


@pytest.mark.parametrize(
    ("source", "gpus", "sizes"),
    [
        ("Qwen/Qwen2.5-7B", 8, [1, 2, 4]),  # 28 heads, 4 of keys and values
        ("Qwen/Qwen2.5-7B", 7, [1]),  # neither 4 nor 7 divides the other
        ("Qwen/Qwen2.5-1.5B", 8, [1, 2, 4, 8]),  # unknown here
        ("Qwen/Qwen2.5-Math-1.5B", 12, [1, 2, 4]),  # the vocabulary has no six parts, and 8960 no three
        ("Qwen/Qwen2.5-0.5B", 8, [1, 2]),
        ("meta-llama/Llama-3.1-8B", 16, [1, 2, 4, 8, 16]),
    ],
)
def test_a_copy_of_the_model_is_shared_by_as_many_gpus_as_divide_its_heads_and_matrices(source, gpus, sizes):
    def spec(size: int, *overrides: str) -> TrainSpec:
        verl = {"gpus_per_node": gpus, "tensor_parallel": size, "overrides": list(overrides)}
        return parse_spec({"engine": "verl", "model": {"source": source}, "verl": verl}, "test")

    divisors = [size for size in range(1, gpus + 1) if gpus % size == 0]
    assert [size for size in divisors if not refuses(check_parallelism, spec(size))] == sizes
    evaluated = EvalSpec(model={"source": source}, benchmarks=[{"name": "aime24"}], generator="vllm")
    evaluated = evaluated.model_copy(update={"max_response_tokens": 9})
    model = looks.look_at_model(source)
    fitted = {size: evaluated.model_copy(update={"num_gpus": size}) for size in divisors}
    assert [
        size for size in divisors if not refusal_of(partial(check_fit, EvaluationLook(fitted[size], model, [])))
    ] == sizes
    sequence = f"{ACTOR}.ulysses_sequence_parallel_size={gpus + 1}"
    assert refuses(check_parallelism, spec(1, sequence)) == ("verl.overrides",)
