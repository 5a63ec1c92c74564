"""A runs root with chains runs in every state, made by hand, and judges on one of them."""

import json
from datetime import UTC, datetime

from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest import events
from exgrpo.db.queries.runs import get_run
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core.bounded_json import seal
from exgrpo_core.recording.run_status import RunStatus
from tests.app import recorded
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_chains import Response, Step, record_steps

STATES = {"thoughts-failed": "failed", "thoughts-running": "running", "thoughts-finished": "finished"}
JUDGED = "thoughts-finished"
QUEUED = "thoughts-queued"
HOSTILE = recorded.HOSTILE
NUM_STEPS = 12


def record_all(runs_root):
    recorded.beat(runs_root, datetime.now(UTC))
    database = open_database(None, runs_root)
    make_run(database, runs_root, QUEUED, "queued", 0)
    for run_id, status in STATES.items():
        make_run(database, runs_root, run_id, status, NUM_STEPS)
    ingest_job(database, job_of_votes(runs_root, votes(), source=JUDGED, run_id="judge-voted"))
    events.set_status(database, "judge-voted", "finished", attempt=1)
    database.close()


def calibrate(runs_root):
    """Record a calibration of the same judge: sensitivity 0.9, specificity 0.8."""
    labelled = [(f"good{n}", None, "valid" if n < 18 else "invalid", True) for n in range(20)]
    labelled += [(f"bad{n}", None, "invalid" if n < 16 else "valid", False) for n in range(20)]
    database = open_database(None, runs_root)
    ingest_job(database, job_of_votes(runs_root, labelled, source="labelled.jsonl", run_id="judge-calibrated"))
    database.close()


def make_run(database, runs_root, run_id, status, num_steps):
    if num_steps:
        folder = record_steps(runs_root, [step(number) for number in range(num_steps)], run_id)
    else:
        folder = RunDirectory.create(runs_root, load_preset("chains-exgrpo"), run_id=run_id)
    spec = load_preset("chains-exgrpo").model_copy(update={"num_steps": NUM_STEPS, "name": run_id})
    folder.info_path.write_bytes(seal(json.dumps({**folder.read_run_info(), "name": run_id}).encode()))
    events.register_run(database, folder.read_run_info(), spec.model_dump(mode="json"))
    batch = EventReader(folder).read(max_steps=1_000)
    events.ingest_events(database, run_id, batch.events, batch.position)
    if status in {"failed", "finished"}:
        write_outcome(folder.attempt_path(1), RunStatus(status), "")
    if num_steps:
        at = get_run(database, run_id).started_at
        events.set_status(database, run_id, status, recorded.FAILURE if status == "failed" else "", attempt=1, at=at)


def step(number):
    """Return a step with an easy, a medium and a hard question; ids count 17 a step."""
    easy = [Response(0.1 + 0.01 * item, is_valid=True) for item in range(4)] + [Response(0.9, is_correct=False)]
    medium = [
        Response(0.2, is_valid=True), Response(0.3 + 0.01 * number, is_valid=False, nll=0.5),
        Response(0.6, is_valid=False, has_code=True, nll=0.7), Response(0.8, is_correct=False, text=HOSTILE),
        Response(0.8, is_correct=False),
    ]  # fmt: skip
    hard = [Response(0.5, is_valid=number % 2 == 0, text=f"{HOSTILE} \\boxed{{9}}")]
    hard += [Response(0.7, is_correct=False)] * 6
    first = 17 * number
    return Step(
        {0: easy, 1: medium, 2: hard}, inserted=[(0, first), (1, first + 7)], retired=[0] if number == 6 else (),
        replayed={1: (7, 1)} if number else {},
    )  # fmt: skip


def votes():
    rows = []
    for number in range(NUM_STEPS - 1):
        first = 17 * number
        for offset, outcome in ((0, "valid"), (5, "valid"), (6, "valid"), (7, "invalid"), (10, "unjudged")):
            rows.append((f"1/{first + offset}", first + offset, outcome, None))
        rows.append((f"1/{first + 5}", first + 5, "invalid" if number == 0 else "valid", None))
    return rows
