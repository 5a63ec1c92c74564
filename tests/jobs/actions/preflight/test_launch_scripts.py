import os
import subprocess

import pytest
import yaml

from exgrpo.jobs.actions.preflight.launch_scripts import ScriptKind, write_script
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec


def preset(name: str = "paper-exgrpo", **verl: object) -> TrainSpec:
    content = load_preset(name).model_dump(mode="json")
    content["verl"] |= verl
    return parse_spec(content, "test")


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(tmp_path / "gone"))
    return lambda spec, kind: write_script(spec, tmp_path / "runs", kind).text


def headers(text: str) -> dict[str, str]:
    lines = (line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH --"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize("num_nodes", [1, 4])
@pytest.mark.parametrize("kind", list(ScriptKind))
def test_scripts_are_valid_bash(script, kind, num_nodes):
    text = script(preset(num_nodes=num_nodes), kind)
    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("kind", [ScriptKind.SHELL, ScriptKind.SLURM])
def test_script_holds_the_whole_specification_without_the_address_of_a_cluster(script, kind):
    spec = preset(num_nodes=2, ray={"address": "http://127.0.0.1:8265"})
    text = script(spec, kind)
    inside = text.split("<<'END_OF_SPECIFICATION'\n")[1].split("END_OF_SPECIFICATION\n")[0]
    read = parse_spec(yaml.safe_load(inside), "script")
    assert read == preset(num_nodes=2)


def test_slurm_gives_every_machine_its_gpus_ray_and_time_to_stop(script):
    text = script(preset(num_nodes=4), ScriptKind.SLURM)
    options = headers(text)
    assert options["nodes"] == "4"
    assert (options["ntasks-per-node"], options["gpus-per-node"], options["cpus-per-task"]) == ("1", "8", "36")
    assert (options["time"], options["signal"]) == ("1-00:00:00", "B:TERM@900")
    assert "--num-cpus=36 --num-gpus=8" in text
    assert "RAY_AUTH_MODE=token" in text


def test_one_machine_needs_no_cluster_under_slurm_and_those_of_a_reward_model_have_its_gpus_too(script):
    text = script(preset(), ScriptKind.SLURM)
    assert headers(text)["nodes"] == "1"
    assert "ray start" not in text
    assert headers(script(load_preset("paper-wildchat-if"), ScriptKind.SLURM))["gpus-per-node"] == "8"


@pytest.mark.parametrize(
    ("num_nodes", "kind", "words"),
    [
        (2, ScriptKind.SLURM, "sbatch"),
        (2, ScriptKind.SHELL, "RAY_ADDRESS"),
        (1, ScriptKind.SHELL, "expected a checkout with .venv"),
    ],
)
def test_a_script_that_is_started_in_the_wrong_place_says_what_it_needs(script, tmp_path, num_nodes, kind, words):
    text = script(preset(num_nodes=num_nodes), kind)
    if num_nodes > 1:  # as in a checkout with its environment
        text = text.replace("[ ! -x .venv/bin/exgrpo ]", "false")
    variables = {"EXGRPO_FOLDER": str(tmp_path)}
    checked = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=False, env=variables)
    assert checked.returncode != 0
    assert words in checked.stderr


def test_embedded_engine_is_no_job_for_ray_and_what_no_machine_can_run_has_no_script(script, tmp_path):
    run = RunDirectory.create(tmp_path / "runs", load_preset("chains-exgrpo"))
    started = apply_settings(preset(), [f"waits_for={run.run_id}", f"model.source={run.run_id}@last"])
    short = apply_settings(preset(), ["model.source=Qwen/Qwen2.5-Math-7B"])
    for spec, kind, field in (
        (load_preset("chains-exgrpo"), ScriptKind.RAY, "engine"),
        (short, ScriptKind.SHELL, "model.source"),
        (started, ScriptKind.SHELL, "model.source"),
    ):
        with pytest.raises(SpecError) as refused:
            script(spec, kind)
        assert refused.value.fields == (field,)
    assert headers(script(load_preset("chains-exgrpo"), ScriptKind.SLURM))["nodes"] == "1"
    assert "waits_for: null" in script(apply_settings(preset(), [f"waits_for={run.run_id}"]), ScriptKind.SHELL)


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"data.source": "big.jsonl", "model.source": "./model"}, {"data.source", "model.source"}),
        ({"data.source": "../up/big.parquet", "model.source": "~/gone.gguf"}, {"data.source", "model.source"}),
        ({"algorithm.uses_external_experience": True, "external_experience": "theirs.jsonl"}, {"external_experience"}),
    ],
)
def test_every_path_of_a_script_is_absolute_also_of_files_that_are_not_here(
    script, tmp_path, monkeypatch, settings, fields
):
    monkeypatch.chdir(tmp_path)
    before = load_preset("qwen-0.5b")
    text = script(apply_settings(before, [f"{name}={value}" for name, value in settings.items()]), ScriptKind.SHELL)
    inside = yaml.safe_load(text.split("<<'END_OF_SPECIFICATION'\n")[1].split("END_OF_SPECIFICATION\n")[0])
    for name, given in settings.items():
        value = inside
        for part in name.split("."):
            value = value[part]
        assert value == (os.path.abspath(os.path.expanduser(given)) if name in fields else given)
