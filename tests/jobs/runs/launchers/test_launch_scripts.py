"""The shell script to take along, really run as a job of a Ray cluster; of Slurm's see test_slurm.py."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exgrpo.jobs.actions.preflight.launch_scripts import ScriptKind, write_script
from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.runs.attempts import read_heartbeat, read_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.launchers.ray_jobs_api import RayJobsApi
from exgrpo.jobs.specs.train import parse_spec
from tests.jobs.runs.launchers.ray_cluster import TOKEN, RayCluster, find_ray
from tests.jobs.training.engines.verl_ray.runs import MARK, RUN_SECONDS, marked, run_content, steps_of
from tests.tools import report_missing

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(3600)]

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
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def keep(folder: Path, kind: ScriptKind, num_steps: int = 2, **verl: object) -> str:
    content = run_content(num_steps=num_steps, name="tiny verl")
    content["verl"] |= verl
    script = write_script(parse_spec(content, "test"), folder / "elsewhere", kind)
    (folder / script.file_name).write_text(script.text)
    return script.file_name


def only_run(runs_root: Path) -> RunDirectory:
    (path,) = (path for path in runs_root.iterdir() if path.name != "workbench")
    return RunDirectory(path)


def status_of(runs_root: Path) -> str | None:
    outcome = read_outcome(only_run(runs_root).attempt_path(1))
    return None if outcome is None else str(outcome.status)


def submitted(folder: Path, cluster: RayCluster, num_steps: int) -> list[str]:
    """Return the words of the line for Ray; the runs root comes with the job, where a user sets it on the cluster."""
    keep(folder, ScriptKind.SHELL, num_steps)
    script = keep(folder, ScriptKind.RAY, num_steps, ray={"address": cluster.address})
    words = shlex.split((folder / script).read_text())
    position = words.index("--runtime-env-json") + 1
    environment = json.loads(words[position])
    environment["env_vars"]["EXGRPO_RUNS_ROOT"] = str(folder / "runs")
    words[position] = json.dumps(environment)
    return [str(find_ray()), *words[1:]]


def test_line_for_ray_runs_the_shell_script_as_a_job_whose_stop_from_ray_ends_with_a_checkpoint(
    tmp_path: Path, play: Play, cluster: RayCluster
):
    words = submitted(tmp_path, cluster, num_steps=1000)
    words.insert(words.index("--"), "--no-wait")
    play(*words, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN)
    give_up_at = time.monotonic() + RUN_SECONDS
    while not list((tmp_path / "runs").glob("2*/attempts/0001/record-*")) or last_step(tmp_path / "runs") < 2:
        assert time.monotonic() < give_up_at
        time.sleep(0.5)
    api = RayJobsApi(cluster.address, TOKEN)
    # Other tests may have left ended jobs on the cluster.
    (job,) = (job for job in api._ask("GET", "/api/jobs/").json() if str(tmp_path) in json.dumps(job["runtime_env"]))
    api.stop(job["submission_id"])
    while status_of(tmp_path / "runs") is None:
        assert time.monotonic() < give_up_at
        time.sleep(0.5)
    api.close()
    assert status_of(tmp_path / "runs") == "stopped"
    run = only_run(tmp_path / "runs")
    assert (run.checkpoints_path / f"step-{max(steps_of(run)):08d}" / "manifest.json").is_file()


def last_step(runs_root: Path) -> int:
    heartbeat = read_heartbeat(only_run(runs_root).attempt_path(1))
    return 0 if heartbeat is None else heartbeat.step
