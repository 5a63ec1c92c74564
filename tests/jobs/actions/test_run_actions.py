import json
from pathlib import Path

import pytest

from jobs.actions import run_actions
from jobs.runs import lookup
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import CommandError
from jobs.runs.status import RunStatus
from jobs.specs.train import DataSpec, TrainSpec


def test_submitted_run_is_queued_and_its_folder_holds_the_specification(tmp_path):
    run_id = run_actions.submit(tmp_path / "runs", TrainSpec(name="mine"))
    run = RunDirectory.open(tmp_path / "runs", run_id)
    assert run.spec().name == "mine"
    assert lookup.state_of(tmp_path / "runs", run).status is RunStatus.QUEUED


def test_local_data_file_is_named_absolutely_since_workers_run_elsewhere(tmp_path, monkeypatch):
    row = {
        "data_source": "math",
        "prompt": [{"role": "user", "content": "1 + 1?"}],
        "reward_model": {"ground_truth": "2"},
    }
    (tmp_path / "questions.jsonl").write_text(json.dumps(row))
    monkeypatch.chdir(tmp_path)
    run_id = run_actions.submit(tmp_path, TrainSpec(data=DataSpec(source="questions.jsonl")))
    assert run_actions.clone(tmp_path, run_id).data.source == str(tmp_path / "questions.jsonl")


def test_folder_that_happens_to_be_called_like_made_questions_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "chains").mkdir()
    (tmp_path / "chains-warm").mkdir()
    monkeypatch.chdir(tmp_path)
    spec = run_actions.clone(tmp_path, run_actions.submit(tmp_path, TrainSpec()))
    assert (spec.data.source, spec.model.source) == ("chains", "chains-warm")


def test_runs_root_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="choose another runs root"):
        run_actions.submit(tmp_path / "file", TrainSpec())


@pytest.mark.parametrize("run_id", ["../elsewhere", "workbench", "", "20260101-000000-abcdef"])
def test_run_that_is_not_there_or_leads_elsewhere_is_refused(tmp_path, run_id):
    with pytest.raises(CommandError):
        run_actions.stop(tmp_path, run_id)


def test_folder_that_was_never_queued_can_be_started_by_resume(tmp_path):
    run = RunDirectory.create(tmp_path, TrainSpec())
    assert lookup.state_of(tmp_path, run).status is RunStatus.STOPPED
    run_actions.resume(tmp_path, run.run_id)
    assert lookup.state_of(tmp_path, run).status is RunStatus.QUEUED


@pytest.mark.parametrize("name", ["", " ", "x" * 41, "two\nlines"])
def test_unusable_tag_is_refused(tmp_path, name):
    run_id = run_actions.submit(tmp_path, TrainSpec())
    with pytest.raises(CommandError, match="tag: expected"):
        run_actions.tag(tmp_path, run_id, name)


def test_too_long_note_is_refused(tmp_path):
    run_id = run_actions.submit(tmp_path, TrainSpec())
    with pytest.raises(CommandError, match="note: expected at most"):
        run_actions.note(tmp_path, run_id, "x" * 20_001)


def test_commands_load_no_training_engine(repository: Path):
    import subprocess
    import sys

    unwanted = "{'torch', 'transformers', 'sqlalchemy'}"
    code = f"import sys, jobs.actions.run_actions; print(sorted({unwanted} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_run_with_a_damaged_name_is_said_to_be_known_by_its_id(tmp_path):
    run = RunDirectory.create(tmp_path, TrainSpec(name="mine"))
    run.info_path.write_text("{")
    assert lookup.find_run_id(tmp_path, run.run_id) == run.run_id
    with pytest.raises(CommandError, match=f"damaged run.json by id: {run.run_id}"):
        lookup.find_run_id(tmp_path, "mine")
