"""No file of one run ends the supervisor, a listing or a page; a run that cannot be read is listed with the reason."""

import json
import os
import shutil
from contextlib import closing

import pytest
from typer.testing import CliRunner

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries.runs import list_runs
from exgrpo.jobs.actions.verification import verify_root
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import JournalKind
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.bounded_json import seal
from exgrpo_core.recording.record_file import pack, record_path
from exgrpo_core.recording.run_status import RunStatus

pytestmark = pytest.mark.slow

DEEP = b"[" * 200_000
AT = "2026-01-01T00:00:00+00:00"
CONTENTS = {
    "deep": DEEP, "deep mapping": b'{"a":' * 200_000, "levels": b"[" * 900 + b"]" * 900, "empty": b"", "list": b"[1]",
    "number": b"1e999", "long number": b"9" * 5000, "binary": bytes(range(256)), "large": b" " * (5 << 20),
}  # fmt: skip
FILES = (
    "run.json", "spec.json", "attempts/0001/outcome.json", "attempts/0001/heartbeat.json", "attempts/0001/ray.json",
    "attempts/0001/record-0000-of-0001.jsonl.gz", "attempts/0001/lock",
)  # fmt: skip
SHAPES = ({"algorithm": None}, {"model": 5}, {"kind": "eval", "benchmarks": "x"})
OUT_OF_RANGE = ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "0001-01-01")


def sealed_json(record):
    return seal(json.dumps(record).encode())


def status(**changes):
    return {"kind": "status", "at": AT, "status": "running", "reason": ""} | changes


def line(**changes):
    return json.dumps(status(**changes)).encode() + b"\n"


INFOS = (
    *({"created_at": at} for at in OUT_OF_RANGE), {"name": "a\ud800b"}, {"name": "a\0b"}, {"branched_from_step": 2**80},
    {"parent_run_id": "a\ud800b"}, {"parent_run_id": "info-9"},
)  # fmt: skip
END = {"status": "stopped", "reason": "", "at": AT, "sizes": {}}
OUTCOMES = (
    *({"at": at} for at in OUT_OF_RANGE), {"status": "running"}, {"sizes": {"a": -(2**80)}}, {"sizes": 5},
    {"sizes": {"a": "x"}},
)  # fmt: skip
LINES = {
    "deep event": b'{"kind":' + DEEP + b"}\n",
    "deep fields": b'{"kind":"status","at":' + b"[" * 900 + b"]" * 900 + b"}\n", "no fields": b"{}\n",
    "kind of another type": line(kind=[]), "unknown kind": line(kind="x"), "time of another type": line(at=5),
    **{f"time {at[-6:]}".replace(":", ""): line(at=at) for at in OUT_OF_RANGE},
    "status of another type": line(status=[]), "reason of another type": line(reason=5),
    "questions of another type": line(kind="questions", question_set="training", questions=5),
    "details of another type": line(kind="questions", question_set="training", questions=[{"details": []}]),
    "step without fields": line(kind="step", step=1), "step of another type": line(kind="step", step=[]),
    "huge step": line(kind="step", step=2**80),
    "trajectory of another type": line(kind="step", step=1, metrics={}) + line(kind="trajectory", step=1, text=5),
    "votes of another type": line(kind="votes", votes=5),
}  # fmt: skip
RECORDS = {label: pack([content]) for label, content in LINES.items()} | {
    "huge length": pack([line()])[:16] + b"\xff" * 8 + pack([line()])[24:],
    "bomb": pack([b" " * (300 << 20)]),
}


def make_run(root, run_id):
    run = RunDirectory.create(root, TrainSpec(), run_id=run_id)
    run.claim_attempt()
    record_path(run.attempt_path(1)).write_bytes(pack([line()]))
    write_outcome(run.attempt_path(1), RunStatus.STOPPED, "")
    return run


def replace(path, content):
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def hostile_runs(root):
    for name in FILES:
        for label, content in CONTENTS.items():
            run = make_run(root, f"{name.rpartition('/')[2]}-{label}".replace(" ", "-"))
            replace(run.path / name, content)
            yield run
        run = make_run(root, f"{name.rpartition('/')[2]}-pipe")
        (run.path / name).unlink(missing_ok=True)
        os.mkfifo(run.path / name)
        yield run
    for label, content in RECORDS.items():
        run = make_run(root, f"event-{label}".replace(" ", "-"))
        replace(record_path(run.attempt_path(1)), content)
        yield run
    made = make_run(root, "template").read_run_info()
    records = [("shape", "spec.json", json.dumps(shape).encode()) for shape in SHAPES]
    records += [("info", "run.json", sealed_json(made | changes)) for changes in INFOS]
    records += [("end", "attempts/0001/outcome.json", sealed_json(END | changes)) for changes in OUTCOMES]
    for number, (label, name, content) in enumerate(records):
        run = make_run(root, f"{label}-{number}")
        replace(run.path / name, content)
        yield run
    shutil.rmtree(root / "template")
    run = make_run(root, "attempts-file")
    shutil.rmtree(run.path / "attempts")
    (run.path / "attempts").write_text("x")
    yield run
    run = make_run(root, "attempts-claimed")
    (run.path / "control" / "claimed").write_text(str(2**80))
    yield run
    run = make_run(root, "attempts-digits")
    (run.path / "attempts" / "\u0660\u0660\u0660\u0663").mkdir()
    yield run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A runs root that was taken in, the ids of its hostile runs, and the rows that pages show of all runs by id."""
    root = tmp_path_factory.mktemp("runs")
    hostile = {run.run_id for run in hostile_runs(root)}
    make_run(root, "good")
    ingest_all(root, None)
    return root, hostile, rows_of(root)


def rows_of(root):
    with closing(open_database(None, root)) as database:
        return {row.run_id: row for row in list_runs(database, limit=None)}


def test_every_run_is_listed_the_good_one_whole_and_one_that_cannot_be_read_with_the_reason(root):
    _, hostile, rows = root
    assert rows.keys() == hostile | {"good"}
    assert (rows["good"].status, rows["good"].faults) == ("stopped", ())
    assert rows["attempts-file"].status == "lost"
    assert rows["attempts-file"].status_reason
    for run_id, row in rows.items():
        if run_id.startswith(("run.json", "spec.json", "outcome.json", "shape")):
            assert {"damaged", "not_shown"} & {*row.health}, run_id
            assert row.faults or row.not_shown, run_id
            assert all(fault.endswith(".") and "\n" not in fault for fault in row.faults), row.faults


def test_the_command_line_lists_every_run(root):
    path, hostile, _ = root
    result = CliRunner().invoke(app, ["runs", "--runs-root", str(path)], env={"COLUMNS": "300"})
    assert result.exit_code == 0
    assert all(run_id in result.output for run_id in hostile)


def test_every_run_is_checked_whatever_the_others_hold(root):
    damaged = {damage.run_id for damage in verify_root(root[0])}
    assert {"attempts-file", "run.json-deep", "spec.json-deep"} <= damaged
    assert "good" not in damaged


ENTRIES = (
    *((JournalKind.NOTED, {"text": "x"}, at) for at in OUT_OF_RANGE),
    (JournalKind.VERDICT_SET, {"trajectory_id": 2**80, "attempt": 1, "is_valid": True}, AT),
    (JournalKind.VERDICT_SET, {"trajectory_id": float("inf"), "attempt": 1, "is_valid": True}, AT),
    (JournalKind.CASE_MARKED, {"low_trajectory_id": 2**80, "high_trajectory_id": 1, "attempt": 1, "case_set": "x"}, AT),
    (JournalKind.SUBMITTED, {"attempt": 2**80}, AT),
    (JournalKind.TAGGED, {}, AT),
    (JournalKind.TAGGED, {"tag": "\ud800\0"}, AT),
    (JournalKind.RENAMED, {"name": None}, AT),
)


@pytest.mark.parametrize(("kind", "data", "at"), ENTRIES)
def test_no_entry_of_a_restored_journal_keeps_later_ones_out(tmp_path, kind, data, at):
    make_run(tmp_path, "good")
    entries = [(kind, data, at), (JournalKind.TAGGED, {"tag": "later"}, AT)]
    records = [{"at": at, "kind": kind, "run_id": "good", "data": data, "by": ""} for kind, data, at in entries]
    (tmp_path / "workbench").mkdir()
    (tmp_path / "workbench" / "journal.jsonl").write_bytes(b"".join(sealed_json(record) + b"\n" for record in records))
    ingest_all(tmp_path, None)
    assert "later" in rows_of(tmp_path)["good"].tags
