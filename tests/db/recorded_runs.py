"""Real runs, recorded into run directories and ingested into a database."""

from exgrpo.db.ingest import events
from exgrpo.db.queries.runs import get_run
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import RecordingSpec, TrainSpec
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.recorder import EvaluationRecord
from exgrpo_core.recording.run_status import RunStatus
from tests.db.table_contents import contents
from tests.step_reports import make_questions, make_report


def new_run(runs_root, spec=None, **parts):
    return RunDirectory.create(runs_root, spec or TrainSpec(name="a run", num_steps=50), **parts)


def record_attempt(run, steps, *, end=None, seed=0, change=None):
    """Record one attempt; with `change`, each report is changed before it is recorded."""
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    recorder.questions(make_questions(), "training")
    for step in steps:
        report = make_report(step, seed)
        if change is not None:
            change(report)
        recorder.step(report)
        recorder.settle()
        if step % 4 == 0:
            evaluation = EvaluationRecord(step, "held_out", ["a", "b", "c"], [0, 4, step % 5], 8, 0.6, 1.5)
            recorder.evaluation(evaluation)
            folder = run.checkpoints_path / f"step-{step:08d}"
            folder.mkdir(exist_ok=True)
            recorder.checkpoint(step, folder)
    if end is not None:
        recorder.status(end, "a reason" if end is RunStatus.FAILED else "")
    recorder.close()


def register(database, run):
    events.register_run(database, run.read_run_info(), run.spec().model_dump(mode="json"))


def contents_after(database, run, batches):
    """Ingest batches of a run's events into a new database, close it, and return everything that was in it then."""
    register(database, run)
    for batch in batches:
        events.ingest_events(database, run.run_id, batch)
    found = contents(database)
    database.close()
    return found


def ingest_run(database, run):
    register(database, run)
    batch = EventReader(run).read(max_steps=1_000)
    return events.ingest_events(database, run.run_id, batch.events, batch.position)


def ingest_changed_run(database, tmp_path, change, steps=range(1, 25), spec=None):
    run = new_run(tmp_path, spec)
    record_attempt(run, steps, change=change)
    ingest_run(database, run)
    row = get_run(database, run.run_id)
    assert row is not None
    return row
