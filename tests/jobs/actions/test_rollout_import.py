import json
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from exgrpo_core.bounded_json import read_json
from exgrpo_core.recording import CannotRecordError, RecordedStep, RecordedTrajectory
from jobs.actions import rollout_import
from jobs.actions.import_process import import_in_process
from jobs.actions.rollout_import import SKIPPED_FILE, RolloutImport, import_rollouts
from jobs.cli.main import app
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal, JournalKind
from jobs.runs.lookup import CommandError
from jobs.runs.rollout_formats.formats import UnknownRolloutsError, find_format
from tests.jobs.runs.rollout_formats.test_published_writers import NEMO, write
from tests.jobs.runs.rollout_formats.test_verl_dumps import line
from tests.records import lines_of


@pytest.fixture
def dump(tmp_path):
    folder = tmp_path / "rollouts"
    folder.mkdir()
    (folder / "1.jsonl").write_text(line(0, 0, 1.0) + line(0, 1, 0.0))
    return folder


@pytest.fixture
def opened(dump, tmp_path):
    """`opened()` is an import of the dump into one root, as each start of a view makes one."""
    root, imports = tmp_path / "root", []

    def opened():
        imports.append(RolloutImport(dump, find_format(dump), root, "mine"))
        return imports[-1]

    yield opened
    for one in imports:
        one.close()


def recorded(run):
    return [line["step"] for line in lines_of(run, "trajectory")]


def test_what_a_path_gets_is_added_once_also_by_a_later_view(dump, opened, tmp_path):
    first = opened()
    first.advance()
    first.advance()
    folder = tmp_path / "root" / first.run_id
    assert recorded(folder) == [1, 1]
    (dump / "2.jsonl").write_text(line(0, 0, 1.0, 2))
    first.advance()
    first.close()
    assert recorded(folder) == [1, 1, 2]
    second = opened()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    second.advance()
    assert second.run_id == first.run_id
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    with (dump / "2.jsonl").open("a") as file:
        file.write(line(0, 1, 1.0, 2) + "bad\n")
    second.advance()
    assert recorded(folder) == [1, 1, 2, 2]
    assert read_json(folder / SKIPPED_FILE)["num"] == second.bad.num == 1


def test_another_content_under_the_path_is_another_run(dump, opened, tmp_path):
    first = opened()
    first.advance()
    first.close()
    (dump / "1.jsonl").write_text(line(5, 0, 1.0))
    second = opened()
    second.advance()
    assert second.run_id != first.run_id
    assert recorded(tmp_path / "root" / second.run_id) == [1]
    assert not (tmp_path / "root" / first.run_id).exists()
    [entry] = Journal(tmp_path / "root").entries()
    assert (entry.kind, entry.run_id) == (JournalKind.DELETED, first.run_id)


def test_an_import_that_was_killed_begins_again(dump, opened, tmp_path):
    first = opened()
    first.advance()
    (dump / "2.jsonl").write_text(line(0, 0, 1.0, 2))
    first._save = lambda: None  # the kill comes before it is kept how far the path was read
    first.advance()
    first.close()
    second = opened()
    second.advance()
    assert second.run_id != first.run_id
    assert recorded(tmp_path / "root" / second.run_id) == [1, 1, 2]


def test_an_import_that_was_killed_before_its_first_end_is_not_shown_beside_the_next(opened, tmp_path):
    first = opened()
    first._reads = replace(first._reads, read=lambda source: iter([*find_format(source.path).read(source)] * 2))
    assert first.advance(give_up_at=0.0)
    first.close()
    second = opened()
    second.advance()
    assert first.run_id != second.run_id
    assert [path.parent.name for path in (tmp_path / "root").glob("*/run.json")] == [second.run_id]


def test_after_an_error_all_is_read_again(dump, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_import, "_RETRY_SECONDS", 0.0)
    one = opened()

    def broken(source):
        for step in find_format(dump).read(source):
            yield step
            raise ConnectionError

    reads, one._reads = one._reads, replace(one._reads, read=broken)
    with pytest.raises(ConnectionError):
        one.advance()
    one._reads = reads
    one.advance()
    assert recorded(tmp_path / "root" / one.run_id) == [1, 1]
    assert one.num_rollouts == 2


def test_what_the_recorder_cannot_write_ends_the_import_with_its_reason(opened):
    one = opened()
    broken, whole = RecordedTrajectory((), answer=object()), RecordedTrajectory(())
    one._reads = replace(one._reads, read=lambda _: [RecordedStep(1, (broken, whole))])
    one.advance()
    assert (one.num_rollouts, one.bad.num) == (1, 1)
    one._reads = replace(one._reads, read=lambda _: [RecordedStep(2**31, (whole,))])
    with pytest.raises(CannotRecordError) as refused:
        one.advance()
    assert "2147483648" in str(refused.value)


def test_evaluations_are_a_run_of_their_own(tmp_path):
    for name, reward in (("train_data_step2.jsonl", 1.0), ("val_data_step2.jsonl", 0.0)):
        write(tmp_path / "logs", name, [NEMO | {"rewards": reward}])
    imported = import_rollouts(tmp_path / "logs", find_format(tmp_path / "logs"), tmp_path / "runs", "mine")
    rewards = {}
    for run in (path.parent for path in (tmp_path / "runs").glob("*/run.json")):
        rewards[read_json(run / "run.json")["name"]] = [line["reward"] for line in lines_of(run, "trajectory")]
    assert rewards == {"mine": [1.0], "mine evaluation": [0.0]}
    assert read_json(tmp_path / "runs" / imported.run_id / "run.json")["name"] == "mine"


def test_a_path_that_gets_nothing_is_shown_as_finished_until_it_gets_more(dump, opened, tmp_path, monkeypatch):
    one = opened()
    one.advance()
    outcome = tmp_path / "root" / one.run_id / "attempts" / "0001" / "outcome.json"
    monkeypatch.setattr(rollout_import, "_QUIET_SECONDS", 0.0)
    time.sleep(0.01)
    one.advance()
    assert read_json(outcome)["status"] == "finished"
    (dump / "2.jsonl").write_text(line(0, 0, 1.0, 2))
    one.advance()
    assert recorded(tmp_path / "root" / one.run_id) == [1, 1, 2]


def test_command_imports_whole_rollouts_and_names_what_it_left_out(dump, tmp_path):
    (dump / "2.jsonl").write_text("broken\n" + line(1, 0, 1.0, 2))
    words = ["import", "--rollouts", str(dump), "--name", "mine", "--runs-root", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    run_id = result.stdout.strip()
    assert recorded(tmp_path / "runs" / run_id) == [1, 1, 2]
    assert "2.jsonl, line 1" in result.stderr
    assert [entry.kind for entry in Journal(tmp_path / "runs").entries()] == [JournalKind.IMPORTED]


def test_rollouts_without_one_row_leave_no_run(tmp_path, dump):
    found = find_format(dump)
    (dump / "1.jsonl").write_text("{}\n" * 5)
    with pytest.raises(UnknownRolloutsError, match=r"line 1: .* line 3: .* And 2 more rows\.$"):
        import_rollouts(dump, found, tmp_path / "runs", "none")
    assert [path for path in tmp_path.glob("runs/*") if path.is_dir()] == []


def test_pages_import_by_a_process_with_a_mapping_of_the_users(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"q": "1+1?", "a": "2"}) + "\n")
    run_id = import_in_process(tmp_path / "runs", str(rows), "prompt: $.q\nresponse: $.a\n", "sent.jsonl and 1 more")
    assert recorded(tmp_path / "runs" / run_id) == [0]
    run = RunDirectory(tmp_path / "runs" / run_id)
    assert (run.read_run_info()["name"], "sent.jsonl and 1 more" in run.spec_path.read_text()) == ("sent", True)
    with pytest.raises(CommandError) as refused:
        import_in_process(tmp_path / "runs", str(rows))
    assert str(refused.value).startswith(str(rows))
