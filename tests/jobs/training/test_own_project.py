"""A project may have folders `app`, `jobs` and `db` of its own: its modules are found, and so are the workbench's."""

import json
import os
import subprocess
import sys

import pytest

from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from tests.house.tracked import LINKED, REPOSITORY

REWARDS = {"answer": 1.0, "jobs.scores:halves": 2.0}


@pytest.fixture
def project(tmp_path):
    for name in LINKED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "jobs" / "scores.py").write_text("def halves(question, answer, response):\n    return 0.5\n")
    return tmp_path


def run_in(project, *command, **variables):
    environment = os.environ | {"PYTHONPATH": str(project), ALLOWED_CODE_VARIABLE: "jobs.scores"} | variables
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


def trained_rewards(project, settings, **variables):
    settings = settings | {"num_steps": 1, "algorithm.reward_kind": "continuous", "algorithm.start_pass_rate": "null"}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    runs_root = ["--runs-root", str(project / "runs")]
    run_in(project, "-m", "exgrpo.jobs.cli", "train", "--preset", "chains-exgrpo", *words, *runs_root, **variables)
    [run] = json.loads(run_in(project, "-m", "exgrpo.jobs.cli", "runs", "--json", *runs_root))
    query = ["query", "trajectories", run["run_id"], "--json", *runs_root]
    return [row["reward"] for row in json.loads(run_in(project, "-m", "exgrpo.jobs.cli", *query))]


@pytest.mark.slow
def test_a_run_is_rewarded_by_the_jobs_of_the_project(project):
    rewards = trained_rewards(project, {"data.rewards": json.dumps(REWARDS)})
    assert rewards
    assert min(rewards) >= 2 * 0.5
    assert max(rewards) <= 1 + 2 * 0.5


OWN = """
from exgrpo_core.methods.protocols import TrajectorySelector

def quarters(question, answer, response):
    return 0.25

class Longest(TrajectorySelector):
    name = "longest"

    def score(self, candidates):
        return -candidates.num_tokens.astype("float32")
"""


@pytest.mark.slow
@pytest.mark.parametrize("paths", [[], ["."]])
def test_a_run_has_the_modules_of_the_folder_where_it_is_started(tmp_path, paths):
    (tmp_path / "own_parts.py").write_text(OWN)
    settings = {"algorithm.trajectory_selection": "own_parts:Longest"}
    settings["data.rewards"] = json.dumps({"own_parts:quarters": 3.0})
    variables = {"PYTHONPATH": os.pathsep.join([*paths, str(REPOSITORY)]), ALLOWED_CODE_VARIABLE: "own_parts"}
    assert set(trained_rewards(tmp_path, settings, **variables)) == {0.75}
