import contextlib
import json
import os
import signal
import time
from collections import Counter

import pytest

from db.connections.opening import open_database
from db.queries.benchmarks import compare_scores, list_scores
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from jobs.actions import run_actions
from jobs.actions.queueing import queue_job
from jobs.cli.following import RunFollower
from jobs.evaluation import evaluation_loop
from jobs.evaluation.evaluation_loop import run_evaluation
from jobs.grading.answer_grader import grader_version
from jobs.recording.file_recorder import FileRecorder
from jobs.runs.control import Phase, RunStatus, TrainingError
from jobs.runs.directory import RunDirectory
from jobs.specs.evaluation import BenchmarkChoice, ServerSpec
from jobs.specs.train import RecordingSpec
from tests.jobs.evaluation.completion_server import completions, running
from tests.jobs.evaluation.tiny_evaluations import BENCHMARKS, save_tiny_model, slices, tiny_evaluation

TIMEOUT_SECONDS = 240.0


class Beats:
    """Counts beats and asks for a stop after so many."""

    def __init__(self, num_beats: int | None = None) -> None:
        self.num_beats = num_beats
        self.beats: list[int] = []
        self.phases: list[Phase] = []

    def stop_requested(self) -> bool:
        return self.num_beats is not None and len(self.beats) > self.num_beats

    def heartbeat(self, step: int) -> None:
        self.beats.append(step)

    def phase(self, phase: Phase) -> contextlib.AbstractContextManager[None]:
        self.phases.append(phase)
        return contextlib.nullcontext()


@pytest.fixture
def benchmark_file(tmp_path):
    """Thirty sums in AIME's place."""
    path = tmp_path / "aime.jsonl"
    rows = [
        {"id": f"q{number}", "problem": f"What is {number}+{number}?", "answer": 2 * number} for number in range(30)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def attempt(run, control=None):
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    try:
        return run_evaluation(run.job_spec(), run, recorder, control or Beats())
    finally:
        recorder.close()


def lines_of(run, pattern):
    return [line for path in sorted(run.path.glob(pattern)) for line in path.read_text().splitlines()]


def answer_lines(run):
    """Return what is recorded of each finished question, without the numbers and checksums of lines."""
    lines = [json.loads(line) for line in lines_of(run, "evaluation/*.jsonl")]
    return [{name: line[name] for name in line if name not in {"seq", "crc"}} for line in lines]


def events(run):
    return [line for line in lines_of(run, "attempts/*/events-*.jsonl") if '"benchmark"' in line]


def right_or_wrong(body):
    """Answer even numbers rightly, in a way on which the schemes differ for 2 and its like."""
    number = int(body["prompt"].split("What is ")[1].split("+")[0])
    if number % 2:
        return completions(*["no idea"] * body["n"])
    return completions(*[rf"\boxed{{{2 * number}}}" + (r" or \boxed{" if number % 4 else "")] * body["n"])


def server_evaluation(address, source, **changes):
    server = ServerSpec(address=address, model="m", num_parallel=2)
    choice = BenchmarkChoice(name="aime24", source=str(source), **changes)
    return tiny_evaluation("served", (choice,), generator="server", server=server)


def test_means_of_reward_parts_are_beside_the_scores(tmp_path, benchmark_file, monkeypatch):
    shortness = "tests.jobs.training.outside_rewards:shortness"
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests.jobs.training.outside_rewards")
    with running(right_or_wrong) as server:
        spec = server_evaluation(server.address, benchmark_file, num_questions=4)
        spec = spec.model_copy(update={"reward_parts": ("answer", "format", shortness)})
        run = RunDirectory.create(tmp_path / "runs", spec)
        assert attempt(run) is RunStatus.FINISHED
    (event,) = (json.loads(line) for line in events(run))
    # Of 0 to 3 the even ones are boxed, "4" before a box that never closes, which is right in training.
    lengths = [len(text) for text in (r"\boxed{0}", "no idea", r"\boxed{4} or \boxed{", "no idea")]
    means = event["reward_parts"]
    assert (means["answer"], means["format"]) == (0.5, 0.5)
    assert means[shortness] == pytest.approx(sum(1 / (1 + length) for length in lengths) / 4)


def test_stopped_evaluation_goes_on_where_it_was(tmp_path, benchmark_file):
    with running(right_or_wrong) as server:
        spec = server_evaluation(server.address, benchmark_file, samples_per_question=2)
        run = RunDirectory.create(tmp_path / "runs", spec)
        assert attempt(run, Beats(0)) is RunStatus.STOPPED
        assert server.asked == []
        control = Beats()
        assert attempt(run, control) is RunStatus.FINISHED
    assert control.beats == list(range(31))
    assert len(server.asked) == 30
    assert len(events(run)) == 1


def test_line_cut_short_by_a_kill_is_asked_again_and_no_other(tmp_path, benchmark_file):
    with running(right_or_wrong) as server:
        run = RunDirectory.create(tmp_path / "runs", server_evaluation(server.address, benchmark_file, num_questions=6))
        attempt(run)
        (path,) = run.path.glob("evaluation/aime24-*.jsonl")
        whole = path.read_bytes()
        path.write_bytes(whole[:-40])
        server.asked.clear()
        assert attempt(run) is RunStatus.FINISHED
        assert len(server.asked) == 1
    assert path.read_bytes() == whole[:-40]


def test_answers_that_an_older_grader_decided_are_graded_again_but_not_asked_again(
    tmp_path, benchmark_file, monkeypatch
):
    with running(right_or_wrong) as server:
        run = RunDirectory.create(tmp_path / "runs", server_evaluation(server.address, benchmark_file, num_questions=3))
        with monkeypatch.context() as older:
            older.setattr(evaluation_loop, "grader_version", lambda: "older")
            attempt(run)
        server.asked.clear()
        assert attempt(run) is RunStatus.FINISHED
        assert server.asked == []
    assert [line["grader_version"] for line in answer_lines(run)] == ["older"] * 3 + [grader_version()] * 3


def test_server_that_fails_midway_keeps_what_it_answered(tmp_path, benchmark_file):
    is_ill = [True]

    def sometimes(body):
        return (500, {}) if is_ill[0] and "What is 7+7?" in body["prompt"] else right_or_wrong(body)

    with running(sometimes) as server:
        spec = server_evaluation(server.address, benchmark_file)
        spec = spec.model_copy(update={"server": spec.server.model_copy(update={"num_tries": 1, "num_parallel": 1})})
        run = RunDirectory.create(tmp_path / "runs", spec)
        with pytest.raises(TrainingError, match="status 500"):
            attempt(run)
        num_before = len(server.asked)
        is_ill[0] = False
        assert attempt(run) is RunStatus.FINISHED
    prompts = Counter(body["prompt"] for _, body in server.asked)
    assert num_before < 30
    assert sum(prompts.values()) <= 32  # the one that failed, and one that may have been under way


def test_wrong_data_is_said_before_the_model_is_touched(tmp_path, benchmark_file):
    benchmark_file.write_text("\n".join(benchmark_file.read_text().splitlines()[:29]) + "\n")
    run = RunDirectory.create(tmp_path / "runs", server_evaluation("http://127.0.0.1:9/v1", benchmark_file))
    with pytest.raises(TrainingError, match="holds 29 questions of aime24, expected 30"):
        attempt(run)


def test_embedded_answers_are_the_same_after_a_resume(tmp_path, benchmark_file):
    model = save_tiny_model(tmp_path / "model")
    choice = BenchmarkChoice(name="aime24", source=str(benchmark_file), num_questions=6, samples_per_question=2)
    spec = tiny_evaluation(model, (choice,))
    whole, interrupted = (RunDirectory.create(tmp_path / "runs", spec) for _ in range(2))
    control = Beats()
    attempt(whole, control)
    assert control.phases == [Phase.ANSWERS] * 3  # a stop waits for the batch
    assert attempt(interrupted, Beats(3)) is RunStatus.STOPPED
    assert 0 < len(answer_lines(interrupted)) < 6
    attempt(interrupted)
    assert answer_lines(interrupted) == answer_lines(whole)
    samples = [tuple(sample["text"] for sample in line["samples"]) for line in answer_lines(whole)]
    assert all(len(set(item)) == 2 for item in samples)  # n samples are n draws
    assert all(sample["log_prob"] < 0 for line in answer_lines(whole) for sample in line["samples"])
    assert len({line["seed"] for line in answer_lines(whole)}) == 3  # one a batch


def test_prompt_that_does_not_fit_is_refused_with_numbers(tmp_path, benchmark_file):
    model = save_tiny_model(tmp_path / "model")
    choice = BenchmarkChoice(name="aime24", source=str(benchmark_file), num_questions=1)
    run = RunDirectory.create(tmp_path / "runs", tiny_evaluation(model, (choice,), max_response_tokens=16384))
    with pytest.raises(TrainingError, match=r"do not fit into the model's context of 16384"):
        attempt(run)


def follow(runs_root, run_id, is_over):
    follower = RunFollower(runs_root, None, run_id)
    give_up_at = time.monotonic() + TIMEOUT_SECONDS
    try:
        while not is_over(state := follower.poll()):
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        if state.is_ended:
            follower.finish()
        return state
    finally:
        follower.close()


@pytest.mark.slow
def test_all_provided_benchmarks_are_scored_end_to_end_through_a_kill(tmp_path, shared_dir):
    runs_root, model = tmp_path / "runs", save_tiny_model(tmp_path / "model")
    spec = tiny_evaluation(model, slices(shared_dir / "data" / "benchmarks", 3), max_response_tokens=200)
    run_id = queue_job(runs_root, spec)
    run = RunDirectory.open(runs_root, run_id)
    killed = follow(runs_root, run_id, lambda _state: len(list(named_lines(run))) >= 4)
    os.kill(killed.heartbeat.worker.pid, signal.SIGKILL)
    assert follow(runs_root, run_id, lambda state: state.is_ended).status is RunStatus.LOST
    run_actions.resume(runs_root, run_id)
    assert follow(runs_root, run_id, lambda state: state.is_ended).status is RunStatus.FINISHED

    finished = Counter((path.name[:-11], line["question_id"]) for path, line in named_lines(run))
    assert sorted(Counter(name for name, _ in finished).items()) == sorted((name, 3) for name in BENCHMARKS)
    assert set(finished.values()) == {1}
    database = open_database(None, runs_root)
    rows = list_scores(database, run_id=run_id)
    scored = tuple((name, run_id) for name in BENCHMARKS)
    same = compare_scores(database, scored, scored, "training")
    database.close()
    assert {(row.benchmark, row.scheme) for row in rows} == {
        (name, scheme) for name in BENCHMARKS for scheme in ("paper", "training")
    }
    assert {row.metric for row in rows if row.benchmark == "amc"} == {"Avg@32"}
    assert sum(sum(row.outcomes.values()) for row in rows if row.scheme == "paper") == 3 * (3 * 32 + 5)
    assert [row.difference for row in same] == [0.0] * len(BENCHMARKS)


def named_lines(run):
    for path in sorted(run.path.glob("evaluation/*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("}\n"):
                yield path, json.loads(line)
