"""Evaluations as their workers would have recorded them, taken into a database."""

from exgrpo.db.ingest import events as ingest
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.train import RecordingSpec
from exgrpo_core.recording.file_recorder import FileRecorder

PARTS = {"data_hash": "aa", "template": "paper", "samples_per_question": 4}


def event(num_correct, **changes):
    num_questions = len(num_correct)
    fields = {
        "benchmark": "aime24", "title": "AIME 2024", "comparability": PARTS, "comparability_key": "k1",
        "samples_per_question": 4, "question_ids": [f"q{number}" for number in range(num_questions)],
        "num_correct": {"paper": num_correct, "training": [0] * num_questions},
        "outcomes": {"paper": {"correct": 3}, "training": {"timeout": 1}}, "mean_tokens": 10.0, "truncated_share": 0.25,
        "notices": [], "seconds": 1.5, "model": "a-model", "source_run_id": "run-1", "source_step": 50,
    }  # fmt: skip
    return fields | changes


def record_scores(
    database, runs_root, *events, times = 1, source = "a-model",
    chosen_as = None, **names,
):  # fmt: skip
    """Record an evaluation of these benchmarks' events and return its id; `names` are those of its folder."""
    model = EvalModelSpec(source=source, chosen_as=chosen_as)
    choices = [BenchmarkChoice(name=item["benchmark"]) for item in events] or [BenchmarkChoice(name="aime24")]
    spec = EvalSpec(model=model, benchmarks=tuple(choices))
    run = RunDirectory.create(runs_root, spec, **names)
    for _ in range(times):
        recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
        for item in events:
            recorder.record("benchmark", item)
        recorder.close()
    ingest.register_run(database, run.read_run_info(), run.job_spec().model_dump(mode="json"))
    batch = EventReader(run).read()
    ingest.ingest_events(database, run.run_id, batch.events, batch.position)
    return run.run_id
