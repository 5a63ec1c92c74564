import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from exgrpo.db.queries.metrics import last_metrics
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError, list_run_directories
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core import recording
from exgrpo_core.recording.run_folder import AttemptClaimedError, make_run_id


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs", TrainSpec(name="a run"))


def test_run_ids_begin_with_the_utc_time_and_sort_in_the_order_in_which_runs_are_made():
    now = datetime(2026, 11, 21, 12, 30, 0, tzinfo=timezone(timedelta(hours=1)))
    made = [make_run_id(now + timedelta(milliseconds=passed)) for passed in range(0, 2000, 7)]
    assert all(re.fullmatch(r"20261121-11300[01]-[0-9a-f]{6}", run_id) for run_id in made)
    assert made == sorted(made)
    assert len({make_run_id(now) for _ in range(10)}) > 1


@pytest.mark.parametrize("name", [b"\xff", b"\xed\xa0\x80", b"\x80/runs"])
def test_a_runs_root_whose_name_is_not_utf_8_is_refused_before_a_run_begins_and_can_be_read(tmp_path, name):
    root = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
    with pytest.raises(RunDirectoryError, match="its name is not UTF-8") as refused:
        RunDirectory.create(root, TrainSpec())
    assert str(refused.value).isascii()
    assert not root.exists()
    run = recording.start("mine", {}, root)  # needs no library that would not write there
    run.log(1, {"loss": 0.5})
    run.finish()
    with open_fresh_index(root, None) as database:
        assert last_metrics(database, run.run_id) == {"loss": 0.5}


@pytest.mark.parametrize("name", ["漢字", "\N{REPLACEMENT CHARACTER}"])
def test_a_runs_root_may_have_any_name_in_utf_8(tmp_path, name):
    assert RunDirectory.create(tmp_path / name, TrainSpec()).spec() == TrainSpec()


def test_a_new_run_gives_back_what_it_was_made_from(tmp_path):
    spec = TrainSpec(name="my run", num_steps=7)
    made = RunDirectory.create(tmp_path, spec, parent_run_id="parent", branched_from_step=5)
    opened = RunDirectory.open(tmp_path, made.run_id)
    assert opened.spec() == spec
    info = opened.read_run_info()
    assert (info["run_id"], info["name"]) == (made.run_id, "my run")
    assert (info["parent_run_id"], info["branched_from_step"]) == ("parent", 5)
    assert datetime.fromisoformat(info["created_at"]).tzinfo == UTC
    assert [run.run_id for run in list_run_directories(tmp_path)] == [made.run_id]


def test_a_run_of_a_taken_id_is_refused_and_the_first_one_stays(tmp_path):
    first = RunDirectory.create(tmp_path, TrainSpec(name="first"), run_id="one")
    with pytest.raises(RunDirectoryError):
        RunDirectory.create(tmp_path, TrainSpec(name="second"), run_id="one")
    assert first.spec().name == "first"
    assert os.listdir(tmp_path) == ["one"]


@pytest.mark.parametrize("run_id", ["", ".", "../x", "a/b", "workbench", ".hidden", "x" * 81, "a\n"])
def test_an_id_that_leads_elsewhere_is_refused(tmp_path, run_id):
    with pytest.raises(RunDirectoryError, match="id"):
        RunDirectory.open(tmp_path, run_id)


def test_a_missing_run_and_a_damaged_one_are_named(tmp_path, run):
    with pytest.raises(RunDirectoryError, match="nothing"):
        RunDirectory.open(tmp_path, "nothing")
    run.info_path.write_text("{", encoding="utf-8")
    with pytest.raises(RunDirectoryError, match=r"run\.json"):
        run.read_run_info()


def test_attempts_are_numbered_from_one_and_each_caller_gets_one_of_its_own(run):
    assert (run.attempts(), run.newest_attempt()) == ([], 0)
    assert run.claim_attempt(1) == 1
    with pytest.raises(AttemptClaimedError):
        run.claim_attempt(1)
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: run.claim_attempt(), range(40)))
    assert sorted(numbers) == list(range(2, 42))
    assert run.attempts() == list(range(1, 42))
    assert run.attempt_path(3).name == "0003"


def test_a_copied_folder_is_a_run_of_its_own(run):
    copy = run.path.rename(run.path.with_name("copied"))
    assert RunDirectory(copy).read_run_info()["run_id"] == "copied"
