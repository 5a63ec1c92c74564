"""Evaluations for the benchmark page: two checkpoints, another model on a slice, one that runs and one that failed."""

import json
from datetime import UTC, datetime

from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest import events
from exgrpo.jobs.evaluation.protocols import load_protocols
from exgrpo.jobs.evaluation.recorded_answers import encode_line
from exgrpo.jobs.runs.attempts import write_outcome, write_plan
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo_core.recording.run_status import RunStatus
from tests.app import recorded
from tests.app.recorded import HOSTILE
from tests.db.recorded_scores import event, record_scores

SAMPLING = {"temperature": 0.6, "top_p": 1.0, "max_response_tokens": 8192, "grader_version": "g1"}
SCHEMES = ("paper", "training")
FAILURE = "aime24.parquet: holds 3 questions of aime24, expected 30; give the benchmark's whole file."


def whole(name, share, *, run="run-finished", step=30, **changes):
    """A benchmark by its protocol, of whose questions this share is solved, the first ones."""
    protocol = load_protocols()[name]
    num_right = round(share * protocol.num_questions)
    num_samples = protocol.samples_per_question
    counts = [num_samples if number < num_right else 0 for number in range(protocol.num_questions)]
    fields = {
        "benchmark": name, "title": protocol.title, "samples_per_question": num_samples, "source_run_id": run,
        "comparability": SAMPLING | {"data_hash": name, "template": "paper", "samples_per_question": num_samples},
        "num_correct": {"paper": counts, "training": [0] * len(counts)},
        "source_step": step if run else None, "model": "policy" if run else HOSTILE,
    }  # fmt: skip
    return event(counts) | {"question_ids": [f"q{number}" for number in range(len(counts))]} | fields | changes


def record_all(runs_root):
    """Record a trained run, its scores at two steps, and another model's on a slice of AIME with another template."""
    recorded.record(runs_root, recorded.FINISHED)
    database = open_database(None, runs_root)
    in_distribution = ("aime24", "aime25", "amc", "math500", "minerva", "olympiad_bench")
    record_scores(database, runs_root, *(whole(name, 0.2, step=7310) for name in in_distribution), run_id="eval-early")
    record_scores(database, runs_root, *(whole(name, 0.6) for name in in_distribution), run_id="eval-late")
    short = {"comparability": SAMPLING | {"data_hash": "x", "template": "none", "samples_per_question": 32}}
    sliced = whole("aime24", 1.0, run=None, **short)
    sliced |= {"question_ids": ["q0"], "num_correct": {key: [32] for key in SCHEMES}}
    record_scores(database, runs_root, sliced, run_id="eval-slice")
    _write_answers(runs_root, "eval-early", "so \\boxed{1}", "wrong")
    _write_answers(runs_root, "eval-late", HOSTILE, "correct")
    database.close()


def record_unfinished(runs_root):
    """Record an evaluation that runs, 12 of 30 questions in, and one that failed."""
    database = open_database(None, runs_root)
    for run_id, status, reason in (("eval-running", "running", ""), ("eval-failed", "failed", FAILURE)):
        record_scores(database, runs_root, run_id=run_id)
        events.set_status(database, run_id, status, reason, attempt=1, at=datetime.now(UTC))
    write_outcome(RunDirectory.open(runs_root, "eval-failed").attempt_path(1), RunStatus.FAILED, FAILURE)
    run = RunDirectory.open(runs_root, "eval-running")
    (run.path / "evaluation").mkdir()
    write_plan(run.path / "evaluation", 30)
    beat = {"pid": 1, "started_seconds": 1.0, "boot_id": "b", "status": RunStatus.RUNNING.value, "step": 12}
    beat["at"] = datetime.now(UTC).isoformat()
    (run.attempt_path(1) / "heartbeat.json").write_text(json.dumps(beat))
    database.close()


def _write_answers(runs_root, run_id, text, outcome):
    folder = runs_root / run_id / "evaluation"
    folder.mkdir()
    sample = {"text": text, "num_tokens": 7, "is_truncated": False}
    line = {
        "question_id": "q10", "seed": 1, "grader_version": "g1", "samples": [sample], "question": "2+2?", "gold": "4",
        "outcomes": [[outcome] * 2],
    }  # fmt: skip
    (folder / "math500-0001.jsonl").write_bytes(encode_line(line | {"question_id": "q100"}) + encode_line(line)[:9])


def record_own_benchmark(runs_root):
    database = open_database(None, runs_root)
    benchmark = {"benchmark": "sums", "title": "My <sums>", "comparability": SAMPLING, "source_run_id": None}
    for name, counts in (("early", [1, 0]), ("late", [1, 1])):
        fields = {"samples_per_question": 1, "model": name, "num_correct": dict.fromkeys(SCHEMES, counts)}
        record_scores(database, runs_root, event(counts) | benchmark | fields, run_id=f"eval-own-{name}")
    database.close()
