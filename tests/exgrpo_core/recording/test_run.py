"""A loop's recorder: lines on disk at once, no error after the start, ranks and forks next to each other."""

import errno
import json
import math
import os
import subprocess
import sys
from collections import deque
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo_core import recording
from exgrpo_core.errors import InputError
from exgrpo_core.recording.lines import parse_trajectory
from exgrpo_core.recording.record_file import read_members, record_path
from exgrpo_core.recording.rows import Message, RecordedTrajectory
from exgrpo_core.recording.run import NOT_FINISHED
from tests.records import read_lines, tokens_of

TRAJECTORY = {"prompt": "1 + 1?", "response": "2", "reward": 1.0, "tokens": [5, 6], "logprobs": [-0.5, -0.25]}


def lines_of(run, rank=0, num_ranks=1):
    path = record_path(run.path / "attempts" / "0001", rank, num_ranks)
    return [line for line in read_lines(path) if line["kind"] != "tokens"]


def read(run, kind="trajectory"):
    return [line for line in lines_of(run) if line["kind"] == kind]


@pytest.mark.parametrize(
    "none",
    [None, [], (), iter(()), (row for row in []), deque(), set(), {}.values(), np.array([]), range(0), map(str, "")],
)
def test_a_step_without_trajectories_loses_nothing(tmp_path, none, caplog):
    run = recording.start("of metrics", {}, tmp_path)
    assert [*run.log(1, {"loss": 0.5}, trajectories=none)] == []
    run.finish()
    assert (run.num_lost, caplog.text, read(run)) == (0, "", [])
    assert [line["metrics"] for line in read(run, "metrics")] == [{"loss": 0.5}]


@pytest.mark.parametrize("other", ["text", b"bytes", [1.0, 2.0], np.ones(2), 1j, Path("a"), 10**400, -(10**310)])
def test_a_metric_that_is_no_number_is_named_once_and_the_others_are_recorded(run, other, caplog):
    for step in (1, 2):
        run.log(step, {"loss": 0.5, "odd": {"one": other}, "none": None, "few": np.float32(1), "is_on": True})
    assert [line["metrics"] for line in read(run, "metrics")] == [{"loss": 0.5, "few": 1.0, "is_on": 1.0}] * 2
    [warning] = caplog.messages
    assert "metrics: 'odd/one' is left out: expected a number" in warning
    assert run.num_lost == 0


def test_of_many_metrics_that_are_no_numbers_the_first_are_named(run, caplog):
    run.log(1, {f"text {number}": "a" for number in range(100)})
    assert len(caplog.messages) == 20


@pytest.mark.parametrize(
    "one", [TRAJECTORY, "a text", b"bytes", {"prompt": ["a", "b"], "response": ["c", "d"]}, {}, "", 5, True, 0.5]
)
def test_what_is_no_list_of_trajectories_is_counted_and_not_taken_apart(run, one, caplog):
    run.log(1, {"loss": 0.5}, trajectories=one)
    run.finish()
    assert (read(run), len(caplog.records)) == ([], 1)
    assert [line["metrics"] for line in read(run, "metrics")] == [{"loss": 0.5}]
    assert "trajectories: expected a list" in read(run, "lost")[0]["reason"]


def test_why_a_trajectory_is_left_out_is_said_without_the_type_of_the_error_and_with_one_full_stop(run, caplog):
    run.log(1, trajectories=[{"prompt": 5, "response": "a"}])
    why = "prompt: expected a text or a list of messages, got '5'"
    assert caplog.messages == [f"{run.path}: not all is recorded: {why}. What is left out is counted in the file."]
    assert run.why_lost == why


@pytest.mark.parametrize("odd", [[TRAJECTORY], "loss", [("loss", 0.5)], 0.5, {"loss"}, b"loss"])
def test_metrics_without_names_are_counted_and_the_trajectories_of_the_step_are_recorded(run, odd, caplog):
    assert len(run.log(1, odd, trajectories=[TRAJECTORY])) == 1
    run.finish()
    assert (len(read(run)), read(run, "metrics"), len(caplog.records)) == (1, [], 1)
    assert read(run, "lost")[0]["reason"].startswith("metrics: expected numbers by name, got a ")


@pytest.mark.parametrize("step", [3, 3.0, "3", "3.0", np.int64(3), np.float32(3), np.array(3)])
def test_a_step_is_taken_as_other_programs_write_it(run, step):
    run.log(step, {"loss": 0.5})
    assert [line["step"] for line in read(run, "metrics")] == [3]


@pytest.fixture
def run(tmp_path):
    run = recording.start("my run", {"lr": 1e-6, "path": Path("a")}, tmp_path)
    yield run
    run.finish()


def test_each_line_is_on_disk_when_the_call_returns(run):
    run.log(3, {"loss": 0.5, "rewards": {"format": 1}, "note": "text"}, trajectories=[TRAJECTORY, "text alone"])
    metrics, first, second = lines_of(run)
    assert metrics["metrics"] == {"loss": 0.5, "rewards/format": 1.0}
    messages, facts = parse_trajectory(first)
    assert messages == (Message("user", "1 + 1?"), Message("assistant", "2", is_generated=True))
    assert facts == {"reward": 1.0, "num_tokens": 2, "mean_log_prob": -0.375, "extra": {}}
    assert tokens_of(run.path, first["id"]) == {"token_ids": [5, 6], "log_probs": [-0.5, -0.25]}
    assert parse_trajectory(second)[0] == (Message("assistant", "text alone", is_generated=True),)
    assert json.loads((run.path / "spec.json").read_text())["config"] == {"lr": 1e-6, "path": "a"}


def test_what_the_type_does_not_know_becomes_a_column(run):
    given = TRAJECTORY | {"tool": "calc", "rewards": {"format": 0.5}, "where": Path("x"), "question_id": 7}
    run.log(1, trajectories=[given, RecordedTrajectory((Message("user", "q"),), extra={"a": None})])
    first, second = (parse_trajectory(line)[1] for line in read(run))
    assert first["extra"] == {"tool": "calc", "reward/format": 0.5, "where": "x"}
    assert first["question_id"] == "7"
    assert second["extra"] == {"a": None}


def test_metrics_first_and_the_names_of_wandb(tmp_path):
    run = recording.init("project", config={"a": 1}, dir=tmp_path)
    recording.log({"loss": 0.5})
    run.log({"loss": 0.25}, step=7)
    recording.log({"loss": 0.125})
    recording.finish()
    assert [(line["step"], line["metrics"]["loss"]) for line in read(run, "metrics")] == [
        (1, 0.5), (7, 0.25), (8, 0.125),
    ]  # fmt: skip
    recording.log({"loss": 1.0})
    assert len(lines_of(run)) == 3


def test_an_ended_run_has_no_open_file_and_takes_nothing_more(run):
    run.log(1, trajectories=["one"])
    run.finish()
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EBADF):
        os.fstat(run._file._file)
    assert run.log(2, trajectories=["two"]) == []
    run.annotate(1, "x", reward=1.0)
    run.flush()
    run.finish()
    assert [line["step"] for line in read(run)] == [1]
    assert not run.num_lost


def test_trajectories_before_a_failure_of_their_iterator_are_recorded_and_the_failure_is_counted(run):
    def failing():
        yield "first"
        raise RuntimeError("no more")

    assert len(run.log(1, {"loss": 1.0}, trajectories=failing())) == 1
    run.finish()
    assert [line["kind"] for line in lines_of(run)] == ["lost", "metrics", "trajectory"]
    assert read(run, "lost")[0]["num_trajectories"] == 1


class Hostile:
    def __float__(self):
        raise KeyError("no number")

    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "bad",
    [
        7, {"reward": 1.0}, {"response": "x", "reward": "much"}, {"response": "x", "a": Hostile()},
        {"response": "x", "tokens": [1, 2], "logprobs": [-0.5]},
        {"response": "x", "logprobs": [-0.5], "entropies": [0.5, 0.25]},
    ],
)  # fmt: skip
def test_a_trajectory_that_cannot_be_recorded_is_counted_and_the_others_remain(run, bad, caplog):
    ids = run.log(1, trajectories=["first", bad, "last"])
    run.log(2, trajectories=[bad])
    assert [bool(name) for name in ids] == [True, False, True]
    assert len(caplog.records) == 1
    assert len(read(run)) == 2
    run.finish()
    assert [line["num_trajectories"] for line in read(run, "lost")] == [1, 1]


@pytest.mark.parametrize("step", [-1, 2**31, "one", None, 9.5, True, math.inf, [3]])
def test_no_step_and_no_metrics_end_the_loop(run, step):
    run.log(step, {"a": Hostile(), "b": float("nan")}, trajectories=5)
    run.log(1, {"b": float("nan")})
    run.annotate("?", Hostile(), reward=Hostile())
    run.finish()
    assert read(run, "metrics")[-1]["metrics"] == {"b": "NaN"}
    assert step is None or read(run, "lost")[0]["reason"].startswith("step: ")
    assert read(run, "lost")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_once_and_what_was_lost_is_counted_when_there_is_room(run, monkeypatch, caplog, number):
    write, is_full = os.write, [False]

    def fill(file, content):
        if is_full[0] is True:
            is_full[0] = "after half a line"
            return write(file, content[: len(content) // 2])
        if is_full[0]:
            raise OSError(number, os.strerror(number))
        return write(file, content)

    monkeypatch.setattr("exgrpo_core.recording.record_file.os.write", fill)
    run.log(1, {"loss": 1.0})
    is_full[0] = True
    run.log(2, {"loss": 1.0}, trajectories=["a", "b"])
    run.log(3, trajectories=["c"])
    assert run.num_lost == 4
    is_full[0] = False
    run.log(4, trajectories=["d"])
    assert run.num_lost == 0
    assert len(caplog.records) == 1
    members = list(read_members(record_path(run.path / "attempts" / "0001")))
    assert [member.content is None for member in members] == [False, True, False]
    lost, last = map(json.loads, members[2].lines())
    assert (lost["num_lines"], lost["num_trajectories"], last["step"]) == (4, 3, 4)


def test_ranks_have_files_of_their_own_and_forks_share_one(tmp_path):
    runs = [recording.start("ranks", None, tmp_path, run_id="job-1", rank=rank, num_ranks=2) for rank in range(2)]
    for rank, run in enumerate(runs):
        run.log(1, trajectories=[f"of rank {rank}"])
    pid = os.fork()
    if not pid:
        ids = runs[0].log(2, trajectories=["of a fork"])
        runs[0].finish("failed")
        os._exit(0 if ids else 1)
    assert os.waitpid(pid, 0)[1] == 0
    runs[0].log(3, trajectories=["of the parent"])
    for run in runs:
        run.finish()
    texts = [[line["messages"][0]["text"] for line in lines_of(runs[0], rank, 2)] for rank in range(2)]
    assert texts == [["of rank 0", "of a fork", "of the parent"], ["of rank 1"]]
    outcome = json.loads((runs[0].path / "attempts" / "0001" / "outcome.json").read_text())
    assert outcome["status"] == "finished"
    ids = [line["id"] for line in lines_of(runs[0], 0, 2)]
    assert len({*ids}) == len(ids)


def test_a_second_start_with_other_settings_or_in_a_run_of_another_kind_is_refused(tmp_path):
    config = {"lr": 1e-6, "sizes": (1, 2)}
    recording.start("a", config, tmp_path, run_id="job").finish()
    recording.start("a", None, tmp_path, run_id="job").finish()
    for changed in ({"lr": 1e-5, "sizes": (1, 2)}, {"lr": 1e-6}, {**config, "more": None, "steps": 3}):
        with pytest.raises(InputError):
            recording.start("a", changed, tmp_path, run_id="job")
    path = tmp_path / "job" / "spec.json"
    path.write_text(path.read_text().replace('"recorded"', '"train"'))
    with pytest.raises(InputError):
        recording.start("a", config, tmp_path, run_id="job")
    assert sorted(item.name for item in (tmp_path / "job" / "attempts").iterdir()) == ["0001", "0002"]


def test_a_run_that_is_started_again_has_another_attempt_and_one_that_is_reopened_goes_on(tmp_path):
    recording.start("a", None, tmp_path, run_id="job").finish()
    with recording.start("a", None, tmp_path, run_id="job") as second:
        second.log(2, trajectories=["two"])
        with pytest.raises(InputError):
            recording.reopen(second.path)
        with pytest.raises(InputError):
            recording.start("a", None, tmp_path, run_id="job")
        assert len([*(second.path / "attempts").iterdir()]) == 2
    again = recording.reopen(second.path)
    again.log(3, trajectories=["three"])
    assert not (again.path / "attempts" / "0002" / "outcome.json").exists()
    again.finish()
    assert [line["step"] for line in read_lines(record_path(again.path / "attempts" / "0002"))] == [2, 3]


@pytest.mark.parametrize(
    "fields",
    [{"name": ""}, {"name": "n" * 81}, {"run_id": "../x"}, {"rank": 1, "num_ranks": 2}, {"folder": "/proc/none"}],
)
def test_a_start_that_cannot_record_says_why(tmp_path, fields):
    with pytest.raises((InputError, recording.CannotRecordError)):
        recording.start(**{"name": "x", "folder": tmp_path} | fields)
    assert not [*tmp_path.rglob("*.gz")]


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[2])
from exgrpo_core import recording
run = recording.start("alone", {}, sys.argv[1], run_id="alone")
run.log(1, {"loss": 1.0}, trajectories=["text"])
heavy = {"torch", "pandas", "pydantic", "sqlalchemy", "streamlit", "psutil", "pyarrow"} & set(sys.modules)
assert not heavy, heavy
"""


def test_only_the_core_and_numpy_are_loaded_and_an_end_without_finish_is_recorded(tmp_path):
    core = Path(recording.__file__).parents[2]
    subprocess.run([sys.executable, "-I", "-c", PROGRAM, tmp_path, core], check=True, timeout=60)
    outcome = json.loads((tmp_path / "alone" / "attempts" / "0001" / "outcome.json").read_text())
    assert outcome["status"] == "stopped"


@pytest.mark.parametrize(
    ("last_line", "status", "reason"),
    [
        ("1 / 0", "failed", "ZeroDivisionError: division by zero"),
        ("class Broken(RuntimeError): pass\nraise Broken('out of\\nreach')", "failed", "Broken: out of"),
        ("raise KeyboardInterrupt", "stopped", NOT_FINISHED),
        ("sys.exit(3)", "stopped", NOT_FINISHED),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass", "stopped", NOT_FINISHED),
    ],
)
def test_a_program_that_an_error_ends_has_failed(tmp_path, last_line, status, reason):
    core = Path(recording.__file__).parents[2]
    subprocess.run([sys.executable, "-I", "-c", f"{PROGRAM}{last_line}\n", tmp_path, core], timeout=60)
    outcome = read_outcome(tmp_path / "alone" / "attempts" / "0001")
    assert (outcome.status.value, outcome.reason) == (status, reason)


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ("anything", "", "'anything'"), ("lost", "", "'lost'"), ("running", "Why.", "Why."), ("", "", "''"),
        (None, "", "NoneType"), (True, "", "bool"), (Hostile, "", "Hostile"), ("stopped", "x" * 10**7, "x"),
        ("stopped", Hostile, ""), ("finished\ud800", "", "'finished"),
    ],
    ids=lambda value: str(type(value).__name__) if not isinstance(value, str) else ascii(value[:20]),
)  # fmt: skip
def test_a_run_that_is_ended_as_anything_is_shown_as_stopped(tmp_path, status, reason, words):
    run = recording.start("one", {}, tmp_path)
    run.finish(*(value() if value is Hostile else value for value in (status, reason)))
    outcome = read_outcome(run.path / "attempts" / "0001")
    assert (outcome.status.value, outcome.fault) == ("stopped", None)
    assert words in outcome.reason


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.int64(3), 3), (np.uint8(7), 7), (np.array(5), 5), (np.float32(0.5), 0.5), (np.bool_(True), True),
        (np.str_("adam"), "adam"), (Fraction(1, 2), 0.5), ({"seed": np.int32(2)}, {"seed": 2}),
        ((np.int64(1), 2), [1, 2]), (2**60 + 1, 2**60 + 1), (np.int64(2**60 + 1), 2**60 + 1),
    ],
)  # fmt: skip
def test_a_setting_of_numpy_is_written_as_what_it_is(tmp_path, given, expected):
    run = recording.start("of numpy", {"seed": given}, tmp_path)
    run.finish()
    content = (run.path / "spec.json").read_text()
    assert json.dumps(json.loads(content)["config"]["seed"]) == json.dumps(expected)


@pytest.mark.parametrize("num_digits", [310, 400, 4000, 5000, 20_000])
def test_a_setting_of_hundreds_of_digits_is_kept_as_a_number_or_a_text(tmp_path, num_digits):
    number = -(10**num_digits)
    run = recording.start("long", {"seed": number, "rate": 1.0}, tmp_path)
    run.finish()
    seed, rate = json.loads((run.path / "spec.json").read_text())["config"].values()
    assert (int(seed, 0) if isinstance(seed, str) else seed) == number
    assert rate == 1.0
