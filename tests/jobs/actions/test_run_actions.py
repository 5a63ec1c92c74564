import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exgrpo.jobs.actions import run_actions, run_bin
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.actions.run_actions import read_job_spec
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.runs import lookup
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.control import INTERRUPTED
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.state import read_state
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.judging import JudgedSpec, JudgeSpec
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.recording.run_status import RunStatus

pytestmark = pytest.mark.slow

CLI = CliRunner(env={"EXGRPO_RUNS_ROOT": "", "NO_COLOR": "1", "COLUMNS": "200"})


def call(*words: object) -> str:
    result = CLI.invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def judge_id(tmp_path) -> str:
    trained = queue_job(tmp_path, TrainSpec(name="trained"))
    return queue_job(tmp_path, JudgeSpec(judged=JudgedSpec(run_id=trained), judge="oracle"))


@pytest.fixture
def evaluation_id(tmp_path) -> str:
    choice = BenchmarkChoice(name="math500", num_questions=2)
    return queue_job(tmp_path, EvalSpec(model=EvalModelSpec(source="owner/model"), benchmarks=(choice,)))


def test_folder_that_was_never_queued_can_be_started_by_resume(tmp_path):
    run = RunDirectory.create(tmp_path, TrainSpec())
    assert read_state(run).status is RunStatus.STOPPED
    run_actions.resume(tmp_path, run.run_id)
    assert read_state(run).status is RunStatus.QUEUED


@pytest.mark.parametrize("action", [run_actions.stop, run_actions.archive, run_bin.delete])
def test_a_run_that_a_shutdown_interrupted_continues_no_more_once_it_is_stopped_archived_or_deleted(tmp_path, action):
    run = RunDirectory.create(tmp_path, TrainSpec())
    run.claim_attempt(1)
    write_outcome(run.attempt_path(1), RunStatus.STOPPED, INTERRUPTED)
    run.request_stop(for_shutdown=True)
    action(tmp_path, run.run_id)
    if action is run_bin.delete:
        run_bin.restore(tmp_path, run.run_id)
    assert (run.stop_requested(), run.is_interrupted()) == (True, False)
    with pytest.raises(CommandError):
        run_actions.stop(tmp_path, run.run_id)


def test_unusable_tag_and_too_long_note_are_refused(tmp_path):
    run_id = queue_job(tmp_path, TrainSpec())
    for name in ("", " ", "x" * 41, "two\nlines"):
        with pytest.raises(CommandError):
            run_actions.tag(tmp_path, run_id, name)
    with pytest.raises(CommandError):
        run_actions.note(tmp_path, run_id, "x" * 20_001)


def test_commands_load_no_training_engine(repository: Path):
    unwanted = "{'torch', 'transformers', 'sqlalchemy'}"
    code = f"import sys, exgrpo.jobs.actions.run_actions; print(sorted({unwanted} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_run_with_a_damaged_name_is_said_to_be_known_by_its_id(tmp_path):
    run = RunDirectory.create(tmp_path, TrainSpec(name="mine"))
    run.info_path.write_text("{")
    assert lookup.find_run_id(tmp_path, run.run_id) == run.run_id
    with pytest.raises(CommandError, match=run.run_id):
        lookup.find_run_id(tmp_path, "mine")


def test_clone_queues_a_judge_and_an_evaluation_again(tmp_path, judge_id, evaluation_id):
    for job_id in (judge_id, evaluation_id):
        cloned = call("clone", job_id, "--submit", "--runs-root", tmp_path).split()[0]
        assert cloned != job_id
        spec = read_job_spec(tmp_path, job_id)
        copy = RunDirectory.open(tmp_path, cloned).job_spec()
        assert copy == spec.model_copy(update={"name": f"{spec.name} copy"})
