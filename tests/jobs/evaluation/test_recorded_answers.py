import json

import pytest
from typer.testing import CliRunner

from db.queries.runs import get_run
from exgrpo_core.faults import Fault, FaultKind, describe_fault
from jobs.actions.verification import verify_run
from jobs.cli.main import app
from jobs.evaluation.answer_log import AnsweredQuestion, AnswerLog
from jobs.evaluation.benchmark_questions import BenchmarkQuestion
from jobs.evaluation.generation import Sample
from jobs.evaluation.recorded_answers import FOLDER, encode_line, find_answer_damage, find_answers, iterate_answers
from jobs.grading.answer_grader import SideBySide
from jobs.grading.reward_function import Grade
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from jobs.supervisor.open_index import open_fresh_index
from tests.jobs.analysis.recorded_samples import append as append_sample


@pytest.fixture
def run(tmp_path):
    spec = EvalSpec(model=EvalModelSpec(source="m"), benchmarks=(BenchmarkChoice(name="amc"),))
    return RunDirectory.create(tmp_path, spec)


def append(run, question_id, text, attempt=1):
    question = BenchmarkQuestion(question_id, ({"role": "user", "content": f"ask {question_id}"},), "4", "math")
    outcomes = [SideBySide(Grade.CORRECT, Grade.UNPARSED)]
    log = AnswerLog(run.path, "amc", attempt)
    log.append(AnsweredQuestion(question_id, 1, [Sample(text, 3, is_truncated=True)], outcomes, "g"), question)
    log.close()


def test_question_is_read_back_with_its_answers_and_the_newest_attempt_counts(run):
    append(run, "q1", "old")
    append(run, "q11", "another")
    append(run, "q1", "new", attempt=2)
    answers = find_answers(run.path, "amc", "q1")
    assert (answers.text, answers.gold) == ("ask q1", "4")
    (answer,) = answers.answers
    assert (answer.text, answer.num_tokens, answer.is_truncated) == ("new", 3, True)
    assert answer.outcomes == {"paper": "correct", "training": "unparsed"}


def test_question_that_is_not_finished_or_whose_line_is_cut_short_has_no_answers(run):
    append(run, "q1", "whole")
    path = run.path / FOLDER / "amc-0001.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert find_answers(run.path, "amc", "q1") is None
    assert find_answers(run.path, "amc", "q2") is None
    assert find_answers(run.path, "minerva", "q1") is None


def test_a_folder_in_the_place_of_a_file_is_named(run):
    (run.path / FOLDER / "amc-0001.jsonl").mkdir(parents=True)
    (fault,) = find_answer_damage(run.path, "amc")
    assert (fault.kind, fault.file) == (FaultKind.UNREADABLE, f"{FOLDER}/amc-0001.jsonl")
    assert fault.details.startswith("expected a plain file")


@pytest.mark.parametrize("benchmark", ["/etc/x", "../../elsewhere/amc", "**", "a" * 5000, "a\0b"])
def test_a_benchmark_that_an_imported_run_names_leads_to_no_other_file(run, benchmark):
    append(run, "q1", "whole")
    elsewhere = run.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "amc-0001.jsonl").write_text("damaged\n")
    assert find_answer_damage(run.path, benchmark) == []
    assert find_answers(run.path, benchmark, "q1") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"question_id": 5},
        {"seed": None},
        {"samples": 5},
        {"samples": [5]},
        {"samples": [{"text": 5, "num_tokens": 1, "is_truncated": False}]},
        {"samples": []},
        {"outcomes": [["correct"]]},
        {"outcomes": [[1, 2]]},
        {"gold": {}},
        {"question": []},
    ],
)
def test_a_line_of_another_shape_under_a_right_checksum_is_named_and_passed_over(run, changes):
    append(run, "q1", "whole")
    path = run.path / FOLDER / "amc-0001.jsonl"
    line = json.loads(path.read_text())
    del line["crc"]
    path.write_bytes(path.read_bytes() + encode_line(line | {"question_id": "q2"} | changes))
    assert [name for name, _ in iterate_answers(run.path, "amc")] == ["q1"]
    (fault,) = find_answer_damage(run.path, "amc")
    assert (fault.file, fault.details) == (f"{FOLDER}/amc-0001.jsonl", "1 of its lines hold no answers")


NAME = "sums-0001.jsonl"


@pytest.fixture
def evaluation(tmp_path):
    spec = EvalSpec(model=EvalModelSpec(source="m"), benchmarks=(BenchmarkChoice(name="sums", source="sums.jsonl"),))
    run = RunDirectory.create(tmp_path / "runs", spec)
    run.claim_attempt()
    for number in range(3):
        append_sample(run.path, f"q{number}", [("4", -0.5), ("5", None)])
    return run


def test_every_changed_byte_is_noticed_and_no_changed_answer_is_read(evaluation):
    path = evaluation.path / FOLDER / NAME
    whole = AnswerLog(evaluation.path, "sums", 2).read()
    assert find_answer_damage(evaluation.path) == []
    content = path.read_bytes()
    for at in range(len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        assert all(whole[name] == answered for name, answered in AnswerLog(evaluation.path, "sums", 2).read().items())
        (first, *_) = find_answer_damage(evaluation.path)
        assert first.file == f"{FOLDER}/{NAME}", at


def test_last_line_that_a_kill_cut_is_asked_again_without_a_word(evaluation):
    path = evaluation.path / FOLDER / NAME
    path.write_bytes(path.read_bytes()[:-5])
    assert set(AnswerLog(evaluation.path, "sums", 2).read()) == {"q0", "q1"}
    assert find_answer_damage(evaluation.path) == []


def test_damage_is_said_by_verify_on_the_run_s_page_and_on_resume(evaluation, caplog):
    path = evaluation.path / FOLDER / NAME
    path.write_bytes(path.read_bytes().replace(b"boxed{5}", b"boxed{6}", 1))
    write_outcome(evaluation.attempt_path(1), RunStatus.FINISHED, "")
    fault = Fault(FaultKind.DAMAGED_LINE, f"{FOLDER}/{NAME}", (0,))
    sentence = describe_fault(fault)
    assert [damage.fault for damage in verify_run(evaluation)] == [fault]
    runs_root = str(evaluation.path.parent)
    assert sentence in CliRunner(env={"COLUMNS": "200"}).invoke(app, ["verify", "--runs-root", runs_root]).output
    with open_fresh_index(evaluation.path.parent, None) as database:
        assert sentence in get_run(database, evaluation.run_id).faults
    assert set(AnswerLog(evaluation.path, "sums", 2).read()) == {"q1", "q2"}
    assert f"{sentence} Questions without answers are asked again." in caplog.text


def test_next_attempt_writes_a_file_of_its_own(evaluation):
    append_sample(evaluation.path, "q9", [("4", None)], attempt=2)
    before = (evaluation.path / FOLDER / NAME).read_bytes()
    append_sample(evaluation.path, "q10", [("4", None)], attempt=2)
    lines = (evaluation.path / FOLDER / "sums-0002.jsonl").read_text().splitlines()
    assert [json.loads(line)["question_id"] for line in lines] == ["q9", "q10"]
    assert (evaluation.path / FOLDER / NAME).read_bytes() == before
    assert find_answer_damage(evaluation.path) == []
