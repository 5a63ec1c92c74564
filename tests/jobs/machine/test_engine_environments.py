import sys

import pytest

from exgrpo.jobs.machine.engine_environments import (
    VERL_PYTHON_VARIABLE,
    EngineEnvironmentError,
    Pins,
    engine_python,
    installed_versions,
    verl_pins,
)
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers import local
from exgrpo.jobs.runs.launchers.local import LaunchError, LocalLauncher
from exgrpo.jobs.specs.any_job import loop_name
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.train import TrainSpec, load_preset
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER

pytestmark = pytest.mark.slow


@pytest.fixture
def other_python(tmp_path, monkeypatch):
    path = tmp_path / "other-python"
    path.write_text(f'#!/bin/sh\necho "I am the other one"\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(path))
    return path


def test_verl_alone_has_the_interpreter_that_the_variable_names(other_python):
    assert engine_python("verl") == str(other_python)
    for loop in ("embedded", "eval", loop_name(load_preset("chains-sft"))):
        assert engine_python(loop) == sys.executable


def test_verl_has_the_environment_beside_the_project_by_default(tmp_path, monkeypatch):
    monkeypatch.delenv(VERL_PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr("exgrpo.jobs.machine.engine_environments.PROJECT_ROOT", tmp_path)
    python = tmp_path / ".venv-verl" / "bin" / "python"
    with pytest.raises(EngineEnvironmentError, match="make verl-env"):
        engine_python("verl")
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert engine_python("verl") == str(python)


def test_a_job_starts_with_the_interpreter_of_its_engine(tmp_path, other_python):
    launcher = LocalLauncher(TOY_WORKER)
    for engine, is_other in (("verl", True), ("embedded", False)):
        run = RunDirectory.create(tmp_path / "runs", TrainSpec.model_validate({"engine": engine}))
        worker = launcher.start(run, 1)
        child = local._CHILDREN[worker.pid]
        child.kill()
        child.wait()
        assert child.args[0] == (str(other_python) if is_other else sys.executable)


def test_a_job_without_its_environment_is_a_launch_error(tmp_path, monkeypatch):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(tmp_path / "gone"))
    run = RunDirectory.create(tmp_path, TrainSpec(engine="verl"))
    with pytest.raises(LaunchError, match="make verl-env"):
        LocalLauncher().start(run, 1)


def test_versions_are_those_of_the_other_interpreters_environment():
    versions = installed_versions(sys.executable, ("pytest", "no-such-package"))
    assert versions == {"pytest": pytest.__version__, "no-such-package": None}


def test_an_interpreter_that_does_not_run_is_one_sentence(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(EngineEnvironmentError, match="does not run"):
        installed_versions(str(broken))


def test_pins_are_read_from_the_constraints_and_compared_by_release(tmp_path):
    (tmp_path / "constraints-verl-cpu.txt").write_text("# why\ntorch==2.13.0\nverl==0.9.1\nray==2.60.0  # note\n")
    (pins,) = verl_pins(tmp_path)
    assert pins == Pins("constraints-verl-cpu.txt", {"torch": "2.13.0", "verl": "0.9.1", "ray": "2.60.0"})
    assert pins.differences({"torch": "2.13.0+cpu", "verl": "0.9.1", "ray": "2.60.0", "vllm": None}) == []
    differences = pins.differences({"torch": "2.12.0", "verl": None, "ray": "2.60.0", "vllm": "0.1"})
    assert differences == ["torch is 2.12.0, not 2.13.0", "verl is missing"]


def make_environment(root, name, vllm):
    python = root / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho '{{\"vllm\": {vllm}}}'\n")
    python.chmod(0o755)
    return str(python)


def test_an_evaluation_by_vllm_runs_in_the_first_environment_that_has_it(tmp_path, monkeypatch):
    monkeypatch.delenv(VERL_PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr("exgrpo.jobs.machine.engine_environments.PROJECT_ROOT", tmp_path)
    spec = EvalSpec(generator="vllm", model=EvalModelSpec(source="a/b"), benchmarks=(BenchmarkChoice(name="math500"),))
    make_environment(tmp_path, ".venv-verl", "null")
    with pytest.raises(EngineEnvironmentError, match="make verl-env GPU=1"):
        engine_python(loop_name(spec))
    on_the_cpu = make_environment(tmp_path, ".venv-verl-vllm", '"0.32.0"')
    assert engine_python(loop_name(spec)) == on_the_cpu
    named = make_environment(tmp_path, "gpu", '"0.24.0"')
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, named)
    assert engine_python(loop_name(spec)) == named
