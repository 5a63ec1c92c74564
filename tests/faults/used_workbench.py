"""A workbench that was used: runs of every kind, ended in every way, and all that users can say of them."""

from exgrpo.db.rows.chains_of_thought import SavedCase
from exgrpo.db.rows.trajectories import MarkedTrajectory
from exgrpo.jobs.actions import annotations, run_actions
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.train import RecordingSpec, TrainSpec
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests.db.recorded_runs import new_run, record_attempt
from tests.db.recorded_scores import event
from tests.db.table_contents import contents
from tests.jobs.evaluation.judging.chain_runs import oracle_spec, record_chains, run_job
from tests.step_reports import make_questions

CASE = SavedCase("trained", 1, 0, 3)
_KEYS_PER_RUN = 2**44


def make(runs_root, num_more):
    """Fill a runs root; `num_more` further runs carry a tag and a note each."""
    _record_runs(runs_root)
    for number in range(num_more):
        run = new_run(runs_root, run_id=f"run-{number:04d}")
        record_attempt(run, [1], end=RunStatus.FINISHED)
        write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    _say_things(runs_root, num_more)


def _record_runs(runs_root):
    resumed = new_run(runs_root, run_id="resumed")
    record_attempt(resumed, range(1, 9))
    record_attempt(resumed, range(6, 11), end=RunStatus.FINISHED, seed=1)
    failed = new_run(runs_root, run_id="failed", parent_run_id="resumed", branched_from_step=4)
    record_attempt(failed, [5], end=RunStatus.FAILED)
    trained = record_chains(runs_root, [["valid", "lucky", "wrong", "code"]] * 3)
    judged = RunDirectory.create(runs_root, oracle_spec(), run_id="judged")
    run_job(judged)
    scored = _record_scores(runs_root)
    for run in (trained, judged, scored):
        write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    write_outcome(resumed.attempt_path(1), RunStatus.LOST, "Gone.")
    write_outcome(resumed.attempt_path(2), RunStatus.FINISHED, "")
    write_outcome(failed.attempt_path(1), RunStatus.FAILED, "A reason \N{SNOWMAN}.")


def _record_scores(runs_root):
    spec = EvalSpec(model=EvalModelSpec(source="a-model"), benchmarks=(BenchmarkChoice(name="aime24"),))
    run = RunDirectory.create(runs_root, spec, run_id="scored")
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    recorder.questions(make_questions(), "training")
    recorder.record("benchmark", event([4, 0, 2], source_run_id="resumed", source_step=8))
    recorder.close()
    return run


def _say_things(runs_root, num_more):
    queue_job(runs_root, TrainSpec(name="in the queue", tags=("from its specification",)))
    for name in ("keep", "taken off", " a  b "):
        run_actions.tag(runs_root, "trained", name)
    run_actions.tag(runs_root, "trained", "taken off", is_set=False)
    run_actions.note(runs_root, "trained", "First.\nSecond line \u2028 <b>no</b> \u202e.")
    run_actions.note(runs_root, "trained", "Another.")
    run_actions.archive(runs_root, "failed")
    run_actions.archive(runs_root, "scored")
    run_actions.archive(runs_root, "scored", is_archived=False)
    annotations.mark_case(runs_root, "kept", CASE)
    annotations.mark_case(runs_root, "taken out", CASE)
    annotations.mark_case(runs_root, "taken out", CASE, is_kept=False)
    annotations.set_verdict(runs_root, "trained", 1, 1, True)
    annotations.set_verdict(runs_root, "trained", 1, 2, False)
    annotations.set_verdict(runs_root, "trained", 1, 0, False)
    annotations.set_verdict(runs_root, "trained", 1, 0, None)
    annotations.mark_trajectory(runs_root, MarkedTrajectory("trained", 1, 2, "odd", "first"))
    annotations.mark_trajectory(runs_root, MarkedTrajectory("trained", 1, 2, "odd", "the last word"))
    annotations.mark_trajectory(runs_root, MarkedTrajectory("trained", 1, 3, "odd"))
    annotations.mark_trajectory(runs_root, MarkedTrajectory("trained", 1, 3, "odd"), is_kept=False)
    for number in range(num_more):
        run_actions.tag(runs_root, f"run-{number:04d}", "one of many")
        run_actions.note(runs_root, f"run-{number:04d}", f"Note {number}.")


def tables(database):
    """Return all rows of all tables with runs by their ids, since their numbers follow the order of taking in."""
    found = contents(database)
    run_ids = {row[0]: row[1] for row in found["runs"]}
    return {name: sorted((_named(name, row, run_ids) for row in rows), key=repr) for name, rows in found.items()}


def _named(table, row, run_ids):
    if table == "ingest_positions":
        return row
    if table in ("trajectories", "trajectory_texts"):
        facets = () if table == "trajectories" else row[3:]
        return (run_ids[row[1]], row[0] % _KEYS_PER_RUN, *(facets or row[2:]))
    return (run_ids[row[0]], *row[1:])
