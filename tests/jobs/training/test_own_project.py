"""A project may have folders `app`, `jobs` and `db` of its own: its modules are found, and so are the workbench's."""

import json
import os
import subprocess
import sys

import pytest

from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from tests.house.tracked import LINKED

REWARDS = {"answer": 1.0, "jobs.scores:halves": 2.0}


@pytest.fixture
def project(tmp_path):
    for name in LINKED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "jobs" / "scores.py").write_text("def halves(question, answer, response):\n    return 0.5\n")
    return tmp_path


def run_in(project, *command):
    environment = os.environ | {"PYTHONPATH": str(project), ALLOWED_CODE_VARIABLE: "jobs.scores"}
    done = subprocess.run(
        [sys.executable, "-P", *command], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_and_the_project_are_imported_next_to_each_other(project):
    names = "app.__file__, jobs.__file__, db.__file__, exgrpo.open_run.__module__"
    program = f"import app, db, jobs, exgrpo; print({names})"
    own = [str(project / name / "__init__.py") for name in ("app", "jobs", "db")]
    assert run_in(project, "-c", program).split() == [*own, "exgrpo.jobs.queries.frames"]


@pytest.mark.slow
def test_a_run_is_rewarded_by_the_jobs_of_the_project(project):
    settings = {
        "num_steps": 1,
        "data.rewards": json.dumps(REWARDS),
        "algorithm.reward_kind": "continuous",
        "algorithm.start_pass_rate": "null",
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    runs_root = ["--runs-root", str(project / "runs")]
    run_in(project, "-m", "exgrpo.jobs.cli", "train", "--preset", "chains-exgrpo", *words, *runs_root)
    [run] = json.loads(run_in(project, "-m", "exgrpo.jobs.cli", "runs", "--json", *runs_root))
    query = ["query", "trajectories", run["run_id"], "--json", *runs_root]
    rows = json.loads(run_in(project, "-m", "exgrpo.jobs.cli", *query))
    rewards = [row["reward"] for row in rows]
    assert rewards
    assert min(rewards) >= 2 * 0.5
    assert max(rewards) <= 1 + 2 * 0.5
