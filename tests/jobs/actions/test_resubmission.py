import json

import pytest
from typer.testing import CliRunner

from jobs.actions import run_actions
from jobs.actions.judgements import submit_judge
from jobs.actions.resubmission import read_job_spec, submit_job
from jobs.cli.main import app
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import CommandError
from jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from jobs.specs.judging import JudgedSpec, JudgeSpec
from jobs.specs.train import SpecError, TrainSpec

CLI = CliRunner(env={"EXGRPO_RUNS_ROOT": "", "NO_COLOR": "1", "COLUMNS": "200"})


def call(*words: object) -> str:
    result = CLI.invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def judge_id(tmp_path) -> str:
    """A judge's job on a training run of chains."""
    trained = run_actions.submit(tmp_path, TrainSpec(name="trained"))
    return submit_judge(tmp_path, JudgeSpec(judged=JudgedSpec(run_id=trained), judge="oracle"))


@pytest.fixture
def evaluation_id(tmp_path) -> str:
    choice = BenchmarkChoice(name="math500", num_questions=2)
    return submit_job(tmp_path, EvalSpec(model=EvalModelSpec(source="owner/model"), benchmarks=(choice,)))


def test_clone_prints_a_judges_specification(tmp_path, judge_id):
    content = json.loads(call("clone", judge_id, "--set", "judged.limit=5", "--runs-root", tmp_path))
    assert content == read_job_spec(tmp_path, judge_id).model_dump(mode="json") | {
        "judged": read_job_spec(tmp_path, judge_id).judged.model_dump(mode="json") | {"limit": 5}
    }


def test_clone_queues_a_judge_and_an_evaluation_again(tmp_path, judge_id, evaluation_id):
    for job_id in (judge_id, evaluation_id):
        cloned = call("clone", job_id, "--submit", "--runs-root", tmp_path).split()[0]
        assert cloned != job_id
        spec = read_job_spec(tmp_path, job_id)
        copy = RunDirectory.open(tmp_path, cloned).job_spec()
        assert copy == spec.model_copy(update={"name": f"{spec.name} copy"})


def test_cloned_judge_is_checked_as_a_new_one_is(tmp_path):
    gone = JudgedSpec(file=tmp_path / "gone.jsonl")
    with pytest.raises(SpecError, match=r"gone\.jsonl does not exist"):
        submit_job(tmp_path, JudgeSpec(judged=gone, server={"address": "http://127.0.0.1:1/v1"}))


def test_evaluation_of_a_missing_file_is_refused_when_it_is_queued(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    choice = BenchmarkChoice(name="math500", source="gone.parquet")
    with pytest.raises(SpecError, match=r"benchmarks.math500.source: expected an existing file or folder"):
        submit_job(tmp_path, EvalSpec(model=EvalModelSpec(source="owner/model"), benchmarks=(choice,)))


def test_judge_is_not_branched(tmp_path, judge_id):
    with pytest.raises(CommandError, match="kind: expected train, got judge; name a training run"):
        run_actions.branch(tmp_path, judge_id, 1)
