import json

import pytest
from transformers import AutoTokenizer

from exgrpo.jobs.actions.preflight import dry_run
from exgrpo.jobs.actions.preflight.dry_run import describe_plan, plan_run
from exgrpo.jobs.actions.preflight.looks import FirstLook, look_at
from exgrpo.jobs.actions.preflight.machine_fit import check_machine, compose_config
from exgrpo.jobs.actions.preflight.resolution import RunRefusedError, complete, resolve
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE, EngineEnvironmentError
from exgrpo.jobs.machine.hardware import GIB, Gpu
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import ModelSpec, SpecError, TrainSpec, load_preset, parse_spec
from tests.data_files import verl_row, write_lines
from tests.jobs.training.chat_model import make_chat_model

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(tmp_path / "gone"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def fake_environment(tmp_path, monkeypatch):
    def answer(text: str, exit_code: int = 0) -> None:
        path = tmp_path / "fake-python"
        path.write_text(f"#!/bin/sh\ncat > {tmp_path}/asked\ncat <<'END'\n{text}\nEND\nexit {exit_code}\n")
        path.chmod(0o755)
        monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(path))

    return answer


def verl_spec(name: str) -> TrainSpec:
    return load_preset(name).model_copy(update={"engine": "verl"})


@pytest.mark.parametrize("name", ["paper-exgrpo", "qwen-0.5b"])
def test_each_presets_dry_run_tells_settings_command_memory_and_disk(name, tmp_path):
    plan = plan_run(verl_spec(name), tmp_path)
    assert f"actor_rollout_ref.model.path={plan.spec.model.source}" in plan.settings
    assert plan.needs.gpu_memory.update > 0
    assert plan.needs.recordings > 0
    assert plan.command[-3:] == ["exgrpo.jobs.execution.worker", str(tmp_path / "RUN"), "1"]
    text = describe_plan(plan)
    for part in ("# verl's settings", "# Command", "Memory of ", "trajectories on disk", "--script ray"):
        assert part in text
    assert list(tmp_path.iterdir()) == []


def test_dry_run_names_a_missing_file_and_goes_on(tmp_path):
    plan = plan_run(verl_spec("paper-wildchat-if"), tmp_path)
    assert any("wildchat-if.parquet" in notice for notice in plan.notices)
    assert plan.prompt is None


@pytest.mark.usefixtures("looks")
def test_sampling_settings_without_do_sample_are_noticed(tmp_path):
    folder = make_chat_model(tmp_path / "model")
    spec = apply_settings(load_preset("chains-exgrpo"), [f"model.source={folder}"])
    for settings, is_noticed in (
        ({"temperature": 0.9}, True),
        ({"do_sample": False, "top_k": 20}, True),
        ({"do_sample": True, "temperature": 0.9}, False),
        ({"temperature": 1.0, "eos_token_id": 2}, False),
    ):
        (folder / "generation_config.json").write_text(json.dumps(settings))
        assert any("do_sample" in notice for notice in plan_run(spec, tmp_path).notices) is is_noticed, settings


def test_problems_that_verls_environment_finds_refuse_the_run(tmp_path, fake_environment):
    fake_environment('{"problem": "a.b: verl has no such setting.", "config": null}')
    spec = parse_spec({"engine": "verl"}, "test")
    with pytest.raises(SpecError):
        plan_run(spec, tmp_path)
    with pytest.raises(CommandError):
        queue_job(tmp_path / "runs", spec)
    assert not (tmp_path / "runs").exists()
    assert "data.train_batch_size=128" in (tmp_path / "asked").read_text()


def test_configuration_comes_back_whole_and_a_plan_notes_a_version_that_was_not_tried(tmp_path, fake_environment):
    spec = parse_spec({"engine": "verl"}, "test")
    fake_environment('{"problem": "", "config": {"trainer": {"nnodes": 1}}, "notice": "another version"}')
    assert compose_config(spec, ["trainer.nnodes=1"]) == ({"trainer": {"nnodes": 1}}, ["another version"])
    assert "another version" in plan_run(spec, tmp_path).notices


@pytest.mark.parametrize(("text", "exit_code"), [("no JSON", 0), ("", 3)])
def test_a_broken_environment_is_refused(fake_environment, text, exit_code):
    fake_environment(text, exit_code)
    with pytest.raises(EngineEnvironmentError):
        compose_config(parse_spec({"engine": "verl"}, "test"), [])


def test_a_run_on_this_machine_needs_the_environment_and_one_on_a_cluster_does_not(tmp_path):
    with pytest.raises(CommandError, match="make verl-env"):
        queue_job(tmp_path, parse_spec({"engine": "verl"}, "test"))
    spec = parse_spec({"engine": "verl", "verl": {"ray": {"address": "http://127.0.0.1:8265"}}}, "test")
    complete(resolve(spec, tmp_path), tmp_path).raise_refusals()


def machine_spec(num_gpus: int, **verl: object) -> TrainSpec:
    return parse_spec({"engine": "verl", "verl": {"gpus_per_node": num_gpus} | verl}, "test")


def test_a_machine_with_too_few_gpus_is_told(tmp_path, monkeypatch):
    gpus = [Gpu(index, "H100", 0.0, 0, 80 * GIB) for index in range(2)]
    monkeypatch.setattr("exgrpo.jobs.actions.preflight.looks.list_gpus", lambda: gpus)
    check_machine(look_at(machine_spec(2)))
    for spec, counts in ((machine_spec(3), "3 NVIDIA GPUs"), (load_preset("paper-wildchat-if"), "8 NVIDIA GPUs")):
        with pytest.raises(SpecError, match=counts) as refused:
            check_machine(look_at(spec))
        assert refused.value.fields == ("verl.gpus_per_node",)
    check_machine(look_at(machine_spec(3).model_copy(update={"model": ModelSpec(device="cpu")})))
    assert any("3 NVIDIA GPUs" in notice for notice in plan_run(machine_spec(3), tmp_path).notices)


def test_more_than_one_machine_needs_a_cluster(monkeypatch):
    with pytest.raises(SpecError) as refused:
        check_machine(look_at(machine_spec(8, num_nodes=2)))
    assert refused.value.fields == ("verl.num_nodes",)
    check_machine(look_at(machine_spec(8, num_nodes=2, ray={"address": "http://127.0.0.1:8265"})))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    check_machine(look_at(machine_spec(8, num_nodes=2)))


TURNS = [
    {"role": "assistant", "content": "It is 3."},
    {"role": "user", "content": "Sure?"},
    {"role": "assistant", "content": "Yes."},
]


@pytest.fixture
def looks(monkeypatch):
    """The models that a dry run looks at, in place of the look itself."""
    taken = []
    look = FirstLook(True, "The model was looked at.")
    monkeypatch.setattr(dry_run, "first_look", lambda spec: taken.append(spec.model.source) or look)
    return taken


def sft_plan(tmp_path, *responses):
    rows = [verl_row(f"What is 1 + {number}?", response=text) for number, text in enumerate(responses, start=1)]
    data = write_lines(tmp_path / "own.jsonl", rows)
    content = {
        "sft": {"response_column": "response"},
        "model": {"source": str(make_chat_model(tmp_path / "model")), "device": "cpu"},
        "data": {"source": str(data), "template": "chat", "num_questions": 2, "num_held_out": 0},
        "algorithm": {"batch_size": 2, "mini_batch_size": 2, "max_prompt_tokens": 64, "max_response_tokens": 64,
                      "experience_ratio": 0.0, "rollouts_per_question": 2},
    }  # fmt: skip
    return plan_run(parse_spec(content, "test"), tmp_path / "runs")


def test_dry_run_of_fine_tuning_looks_at_the_model_and_tells_the_trained_tokens_of_each_row(tmp_path, looks):
    plan = sft_plan(tmp_path, "It is 3.", TURNS)
    assert looks == [str(tmp_path / "model")]
    assert "The model was looked at." in plan.notices
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    texts = ("It is 3.", "It is 3.<|im_end|>", "Yes.<|im_end|>")
    alone, *turns = (len(tokenizer.encode(text, add_special_tokens=False)) + 1 for text in texts)
    assert plan.trained_tokens == {"1": alone, "2": sum(turns)}
    lines = describe_plan(plan).splitlines()
    assert {f"row 1: {alone}", f"row 2: {sum(turns)}"} <= set(lines)
    assert f"2 rows: {alone} to {sum(turns)}, median {sum(turns)}" in lines


@pytest.mark.usefixtures("looks")
def test_dry_run_refuses_by_row_and_field_what_the_template_does_not_write(tmp_path):
    thought = {"role": "assistant", "reasoning_content": "1 + 2", "content": "3"}
    with pytest.raises(RunRefusedError, match=r"row 2, response, turn 1, reasoning_content: the model's chat template"):
        sft_plan(tmp_path, "It is 3.", [thought])
