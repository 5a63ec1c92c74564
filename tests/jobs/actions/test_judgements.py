import pytest

from jobs.actions.judgements import submit_judge
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.specs.train import SpecError, TrainSpec
from tests.jobs.judging.chain_runs import oracle_spec, record_chains, server_spec


def test_a_judge_of_a_training_run_is_queued(tmp_path):
    record_chains(tmp_path, [["valid"]])
    job = RunDirectory.open(tmp_path, submit_judge(tmp_path, oracle_spec()))
    assert job.job_spec() == oracle_spec()


def test_the_oracle_judges_chains_only(tmp_path):
    spec = TrainSpec(name="mathematics", data={"source": "some.parquet", "template": "paper"})
    RunDirectory.create(tmp_path, spec, run_id="trained")
    with pytest.raises(SpecError, match=r"trains on some.parquet and the oracle knows chains only"):
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
