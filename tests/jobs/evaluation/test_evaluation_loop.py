import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from exgrpo.jobs.evaluation import evaluation_loop
from exgrpo.jobs.evaluation.analysis.score_curves import read_question_curves
from exgrpo.jobs.evaluation.evaluation_loop import EvaluationLoop, run_evaluation
from exgrpo.jobs.evaluation.recorded_answers import encode_line
from exgrpo.jobs.runs.control import Phase, TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, ServerSpec
from exgrpo.jobs.specs.train import RecordingSpec
from exgrpo.jobs.tasks.grading.answer_grader import grader_version
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests import records
from tests.data_files import write_lines
from tests.jobs.evaluation.judging.chain_runs import Switch
from tests.jobs.evaluation.judging.judge_server import Reply, completions, serving
from tests.jobs.evaluation.tiny_evaluations import save_tiny_model, tiny_evaluation

pytestmark = pytest.mark.slow


@pytest.fixture
def benchmark_file(tmp_path):
    rows = [{"id": f"q{item}", "problem": f"What is {item}+{item}?", "answer": 2 * item} for item in range(30)]
    return write_lines(tmp_path / "aime.jsonl", rows)


def attempt(run, control=None):
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    try:
        return run_evaluation(run.job_spec(), run, recorder, control or Switch())
    finally:
        recorder.close()


def lines_of(run, pattern):
    return [line for path in sorted(run.path.glob(pattern)) for line in path.read_text().splitlines()]


def answer_lines(run):
    lines = [json.loads(line) for line in lines_of(run, "evaluation/*.jsonl")]
    return [{name: line[name] for name in line if name not in {"seq", "crc"}} for line in lines]


def events(run):
    return records.lines_of(run.path, "benchmark")


def right_or_wrong(body):
    """Answer even numbers rightly, in a way on which the schemes differ for 2 and its like."""
    number = int(body["prompt"].split("What is ")[1].split("+")[0])
    if number % 2:
        return completions(*["no idea"] * body["n"])
    return completions(*[rf"\boxed{{{2 * number}}}" + (r" or \boxed{" if number % 4 else "")] * body["n"])


@contextmanager
def evaluated_by(tmp_path, source, behaviour=right_or_wrong, spec=None, **changes):
    with serving(behaviour) as asked:
        server = ServerSpec(address=asked.address, model="m", num_parallel=1, num_tries=1)
        choice = BenchmarkChoice(name="aime24", source=str(source), **changes)
        spec = tiny_evaluation("served", (choice,), generator="server", server=server, **(spec or {}))
        yield RunDirectory.create(tmp_path / "runs", spec), asked


def test_means_of_reward_parts_are_beside_the_scores(tmp_path, benchmark_file, monkeypatch):
    shortness = "tests.jobs.training.outside_rewards:shortness"
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests.jobs.training.outside_rewards")
    parts = {"reward_parts": ("answer", "format", shortness)}
    with evaluated_by(tmp_path, benchmark_file, spec=parts, num_questions=4) as (run, _):
        assert attempt(run) is RunStatus.FINISHED
    (event,) = events(run)
    # Of 0 to 3 the even ones are boxed, "4" before a box that never closes, which is right in training.
    lengths = [len(text) for text in (r"\boxed{0}", "no idea", r"\boxed{4} or \boxed{", "no idea")]
    means = event["reward_parts"]
    assert (means["answer"], means["format"]) == (0.5, 0.5)
    assert means[shortness] == pytest.approx(sum(1 / (1 + length) for length in lengths) / 4)
    assert {scheme: sum(right) for scheme, right in event["num_correct"].items()} == {"paper": 32, "training": 64}


def test_stopped_evaluation_goes_on_where_it_was(tmp_path, benchmark_file):
    with evaluated_by(tmp_path, benchmark_file, samples_per_question=2) as (run, server):
        assert attempt(run, Switch(0)) is RunStatus.STOPPED
        assert server.asked == []
        control = Switch()
        assert attempt(run, control) is RunStatus.FINISHED
    assert control.num_done == len(server.asked) == 30
    assert len(events(run)) == 1


def test_the_time_left_is_by_what_this_attempt_asked(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(evaluation_loop, "time", SimpleNamespace(monotonic=lambda: 100.0))
    done = {"_num_done": 8, "_num_asked": 2, "_num_all": 10, "_began_at": 60.0, "_logged_at": 0.0}
    EvaluationLoop(None, None, None, Switch(), None, None, None, **done)._beat("mine")
    assert caplog.messages == ["mine: 8 of 10 questions, about 40 s left"]


def test_line_cut_short_by_a_kill_is_asked_again_and_no_other(tmp_path, benchmark_file):
    with evaluated_by(tmp_path, benchmark_file, num_questions=6) as (run, server):
        attempt(run)
        (path,) = run.path.glob("evaluation/aime24-*.jsonl")
        whole = path.read_bytes()
        path.write_bytes(whole[:-40])
        assert attempt(run) is RunStatus.FINISHED
    assert len(server.asked) == 6 + 1
    assert path.read_bytes() == whole[:-40]


@pytest.mark.parametrize("change", [lambda samples: samples[:1], lambda samples: [*samples, samples[0]]])
def test_a_question_with_more_or_fewer_answers_is_asked_again(tmp_path, benchmark_file, change):
    with evaluated_by(tmp_path, benchmark_file, num_questions=3, samples_per_question=2) as (run, server):
        attempt(run)
        (path,) = run.path.glob("evaluation/aime24-*.jsonl")
        first, *others = answer_lines(run)
        changed = first | {name: change(first[name]) for name in ("samples", "outcomes")}
        path.write_bytes(b"".join(map(encode_line, [changed, *others])))
        assert attempt(run) is RunStatus.FINISHED
    assert len(server.asked) == 3 + 1


def test_answers_of_an_older_grader_are_graded_again_but_not_asked_again(tmp_path, benchmark_file, monkeypatch):
    with evaluated_by(tmp_path, benchmark_file, num_questions=3) as (run, server):
        with monkeypatch.context() as older:
            older.setattr(evaluation_loop, "grader_version", lambda: "older")
            attempt(run)
        assert attempt(run) is RunStatus.FINISHED
    assert len(server.asked) == 3
    assert [line["grader_version"] for line in answer_lines(run)] == ["older"] * 3 + [grader_version()] * 3


def test_answers_to_a_file_that_changed_are_graded_by_its_new_golds_or_asked_again(tmp_path, benchmark_file):
    with evaluated_by(tmp_path, benchmark_file, num_questions=4) as (run, server):
        attempt(run)
        rows = [json.loads(line) for line in benchmark_file.read_text().splitlines()]
        rows[0] |= {"answer": 1}
        rows[2] |= {"problem": "What is 6+6?", "answer": 12}
        write_lines(benchmark_file, rows)
        assert attempt(run) is RunStatus.FINISHED
    assert len(server.asked) == 4 + 1
    scores = [event["num_correct"]["training"] for event in events(run)]
    assert scores == [[32, 0, 32, 0], [0, 0, 32, 0]]


def test_curves_are_of_the_questions_that_the_score_is_of(tmp_path, benchmark_file):
    rows = [json.loads(line) for line in benchmark_file.read_text().splitlines()]
    write_lines(benchmark_file, ({**row, "id": None} for row in rows))
    with evaluated_by(tmp_path, benchmark_file, num_questions=2, samples_per_question=2) as (run, _):
        attempt(run)
        rows[0] |= {"id": None, "answer": 1}  # another id, since that follows from question and gold answer
        write_lines(benchmark_file, ({**row, "id": None} for row in rows))
        attempt(run)
    event = events(run)[-1]
    curves = read_question_curves(run.path, "aime24", "training")
    assert sorted(curves) == sorted(event["question_ids"])


@pytest.mark.parametrize(("texts", "is_told"), [(["1", "1"], True), (["1", "2"], False)])
def test_a_server_that_draws_one_answer_several_times_is_told(tmp_path, benchmark_file, caplog, texts, is_told):
    with evaluated_by(
        tmp_path, benchmark_file, lambda _body: completions(*texts), num_questions=2, samples_per_question=2
    ) as (run, _):
        attempt(run)
    (event,) = events(run)
    told = [notice for notice in event["notices"] if "Pass@k" in notice]
    assert len(told) == is_told
    assert all(notice in caplog.text for notice in told)


def test_server_that_fails_midway_keeps_what_it_answered(tmp_path, benchmark_file):
    def sometimes(body):
        return Reply("", 500) if "What is 7+7?" in body["prompt"] else right_or_wrong(body)

    with evaluated_by(tmp_path, benchmark_file, sometimes) as (run, server):
        with pytest.raises(TrainingError):
            attempt(run)
        assert len(server.asked) < 30
        server.behaviour = right_or_wrong
        assert attempt(run) is RunStatus.FINISHED
    assert len(server.asked) <= 32  # the one that failed, and one that may have been under way


def test_embedded_answers_are_the_same_after_a_resume(tmp_path, benchmark_file):
    model = save_tiny_model(tmp_path / "model")
    choice = BenchmarkChoice(name="aime24", source=str(benchmark_file), num_questions=6, samples_per_question=2)
    spec = tiny_evaluation(model, (choice,))
    whole, interrupted = (RunDirectory.create(tmp_path / "runs", spec) for _ in range(2))
    control = Switch()
    attempt(whole, control)
    assert control.phases == [Phase.ANSWERS] * 3  # a stop waits for the batch
    assert attempt(interrupted, Switch(3)) is RunStatus.STOPPED
    assert 0 < len(answer_lines(interrupted)) < 6
    attempt(interrupted)
    assert answer_lines(interrupted) == answer_lines(whole)
    samples = [tuple(sample["text"] for sample in line["samples"]) for line in answer_lines(whole)]
    assert all(len(set(item)) == 2 for item in samples)  # n samples are n draws
    assert all(sample["log_prob"] < 0 for line in answer_lines(whole) for sample in line["samples"])
    assert len({line["seed"] for line in answer_lines(whole)}) == 6  # one a question


def sampled_texts(tmp_path, source, model, **changes):
    choice = BenchmarkChoice(name="mine", source=str(source), samples_per_question=3)
    run = RunDirectory.create(tmp_path / "runs", tiny_evaluation(model, (choice,), temperature=1.0, **changes))
    attempt(run)
    return {line["question"]: [sample["text"] for sample in line["samples"]] for line in answer_lines(run)}


def test_samples_depend_on_neither_batch_size_nor_row_order_nor_other_questions(tmp_path):
    rows = [{"id": f"q{item}", "problem": f"What is {item}+{7**item}?", "answer": item} for item in range(8)]
    orders = {"as written": rows, "reversed": rows[::-1], "by parts": rows[3:] + rows[:3], "fewer": rows[2:7]}
    for name, ordered in orders.items():
        write_lines(tmp_path / f"{name}.jsonl", ordered)
    model = save_tiny_model(tmp_path / "model")
    expected = sampled_texts(tmp_path, tmp_path / "as written.jsonl", model)
    assert len({text for texts in expected.values() for text in texts}) == 24
    for name, size in [("as written", 3), ("reversed", 4), ("by parts", 64), ("fewer", 9)]:
        found = sampled_texts(tmp_path, tmp_path / f"{name}.jsonl", model, batch_responses=size)
        assert found == {question: expected[question] for question in found}
        assert len(found) == len(orders[name])
    assert sampled_texts(tmp_path, tmp_path / "as written.jsonl", model, seed=1) != expected
