"""Scripts to take along, really run: in a shell, on two machines of a made-up Slurm, and as a job of a Ray cluster."""

import os
import shlex
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jobs.machine.engine_environments import PROJECT_ROOT
from jobs.preflight.launch_scripts import ScriptKind, write_script
from jobs.runs.attempts import read_outcome
from jobs.runs.directory import RunDirectory
from jobs.specs.train import parse_spec
from tests.jobs.engines.verl_ray.runs import MARK, RUN_SECONDS, run_content
from tests.jobs.launchers.ray_cluster import TOKEN, RayCluster, find_ray
from tests.tools import free_port, report_missing

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(3600)]

SRUN = """#!/bin/bash
# This machine plays all of them: srun's options are dropped and the rest is run.
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
Play = Callable[..., str]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Return a function that runs a command in `tmp_path` and returns its output; its processes are ended."""
    if not os.access(PROJECT_ROOT / ".venv/bin/exgrpo", os.X_OK):
        report_missing("There is no .venv; make it with `make install`.")
    mark = uuid.uuid4().hex

    def run(*command: str, **variables: str) -> str:
        environment = os.environ | {MARK: mark, "SPT_NOENV": "1", "EXGRPO_RUNS_ROOT": str(tmp_path / "runs")}
        output = tmp_path / "output.txt"
        with output.open("wb") as file:  # no pipe: Ray's processes would keep it open
            code = subprocess.run(
                command, cwd=tmp_path, env=environment | variables, stdout=file, stderr=file, timeout=RUN_SECONDS,
                check=False,
            ).returncode  # fmt: skip
        assert code == 0, output.read_text()
        return output.read_text()

    yield run
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                process.kill()
        except psutil.Error:
            continue


def keep(folder: Path, kind: ScriptKind, **verl: object) -> str:
    """Write a script of a tiny run into a folder, and return the file's name."""
    content = run_content(num_steps=2, name="tiny verl")
    content["verl"] |= verl
    script = write_script(parse_spec(content, "test"), folder / "elsewhere", kind)
    (folder / script.file_name).write_text(script.text)
    return script.file_name


def has_trained(runs_root: Path) -> bool:
    """Return whether the only run of a root has succeeded."""
    (path,) = (path for path in runs_root.iterdir() if path.name != "workbench")
    outcome = read_outcome(RunDirectory(path).attempt_path(1))
    return outcome is not None and outcome.status == "succeeded"


def test_shell_script_trains_where_it_is_run(tmp_path: Path, play: Play):
    assert "2 steps" in play("bash", keep(tmp_path, ScriptKind.SHELL))
    assert has_trained(tmp_path / "runs")


def test_slurm_script_starts_ray_on_both_machines_and_trains_over_them(tmp_path: Path, play: Play):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "srun").write_text(SRUN)
    (programs / "srun").chmod(0o755)
    output = play(
        "bash",
        keep(tmp_path, ScriptKind.SLURM, num_nodes=2, gpus_per_node=1),
        PATH=f"{programs}:{os.environ['PATH']}",
        SLURM_JOB_ID=str(free_port()),
        SLURMD_NODENAME="this-machine",
    )
    assert output.count("Ray runtime started") == 2
    assert has_trained(tmp_path / "runs")


def test_line_for_ray_runs_the_shell_script_as_a_job_of_the_cluster(tmp_path: Path, play: Play, cluster: RayCluster):
    keep(tmp_path, ScriptKind.SHELL)
    script = keep(tmp_path, ScriptKind.RAY, ray={"address": cluster.address})
    words = shlex.split((tmp_path / script).read_text())
    ray = find_ray()
    assert ray is not None
    # The cluster's machines have their own variables: the runs root comes with the job.
    environment = f'{{"env_vars": {{"EXGRPO_RUNS_ROOT": "{tmp_path / "runs"}", "RAY_JOB_STOP_WAIT_TIME_S": "900"}}}}'
    words[words.index("--runtime-env-json") + 1] = environment
    output = play(str(ray), *words[1:], RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN)
    assert "succeeded" in output
    assert has_trained(tmp_path / "runs")
