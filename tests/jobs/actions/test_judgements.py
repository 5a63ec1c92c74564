from pathlib import Path

import pytest

from jobs.actions.job_names import name_evaluation
from jobs.actions.judgements import submit_judge
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.specs.evaluation import BenchmarkChoice
from jobs.specs.train import SpecError, TrainSpec
from tests.jobs.evaluation.tiny_evaluations import tiny_evaluation
from tests.jobs.judging.chain_runs import oracle_spec, record_chains, server_spec


def test_a_judge_of_a_training_run_is_queued(tmp_path):
    record_chains(tmp_path, [["valid"]])
    job = RunDirectory.open(tmp_path, submit_judge(tmp_path, oracle_spec()))
    assert job.job_spec() == oracle_spec().model_copy(update={"name": job.job_spec().name})


def test_a_job_without_a_name_is_named_after_what_it_judges_or_scores(tmp_path):
    run = record_chains(tmp_path, [["valid"]])
    name = RunDirectory.open(tmp_path, run.run_id).read_run_info()["name"]
    judge = RunDirectory.open(tmp_path, submit_judge(tmp_path, oracle_spec()))
    assert judge.read_run_info()["name"] == f"judge {name} by the oracle"
    named = oracle_spec().model_copy(update={"name": "mine"})
    assert RunDirectory.open(tmp_path, submit_judge(tmp_path, named)).read_run_info()["name"] == "mine"
    evaluation = tiny_evaluation(
        Path("owner/some-model"), (BenchmarkChoice(name="math500"), BenchmarkChoice(name="aime24"))
    )
    assert name_evaluation(tmp_path, evaluation).name == "score some-model on math500 + aime24"


def test_the_oracle_judges_chains_only(tmp_path):
    spec = TrainSpec(name="mathematics", data={"source": "some.parquet", "template": "paper"})
    RunDirectory.create(tmp_path, spec, run_id="trained")
    with pytest.raises(SpecError, match=r"trains on some.parquet and the oracle knows the built-in tasks only"):
        submit_judge(tmp_path, oracle_spec())
    assert submit_judge(tmp_path, server_spec("http://127.0.0.1:1/v1"))


def test_what_is_not_there_or_no_training_run_is_refused_before_anything_is_queued(tmp_path):
    with pytest.raises(RunDirectoryError, match="has no run trained"):
        submit_judge(tmp_path, oracle_spec())
    with pytest.raises(SpecError, match="does not exist"):
        submit_judge(tmp_path, server_spec("http://127.0.0.1:1/v1", judged={"file": str(tmp_path / "none.jsonl")}))
    RunDirectory.create(tmp_path, oracle_spec(), run_id="trained")
    with pytest.raises(SpecError, match="expected train, got judge"):
        submit_judge(tmp_path, oracle_spec())
    assert len(list(tmp_path.glob("*/run.json"))) == 1


def test_a_file_is_named_as_seen_from_the_folder_of_whoever_asks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labelled.jsonl").write_text("{}\n")
    job_id = submit_judge(tmp_path, server_spec("http://127.0.0.1:1/v1", judged={"file": "labelled.jsonl"}))
    assert RunDirectory.open(tmp_path, job_id).job_spec().judged.file == tmp_path / "labelled.jsonl"
