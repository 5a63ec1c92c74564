import json

import pytest

from jobs.evaluation.answer_lines import encode_line
from jobs.evaluation.answer_log import AnsweredQuestion, AnswerLog
from jobs.evaluation.generation import Sample
from jobs.evaluation.questions import BenchmarkQuestion
from jobs.evaluation.recorded_answers import FOLDER, find_answer_damage, find_answers, iterate_answers
from jobs.grading.outcomes import Outcome
from jobs.grading.schemes import SideBySide
from jobs.runs.directory import RunDirectory
from jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec


@pytest.fixture
def run(tmp_path):
    spec = EvalSpec(model=EvalModelSpec(source="m"), benchmarks=(BenchmarkChoice(name="amc"),))
    return RunDirectory.create(tmp_path, spec)


def append(run, question_id, text, attempt=1):
    question = BenchmarkQuestion(question_id, ({"role": "user", "content": f"ask {question_id}"},), "4", "math")
    outcomes = [SideBySide(Outcome.CORRECT, Outcome.UNPARSED)]
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
    assert fault.startswith(f"{FOLDER}/amc-0001.jsonl: cannot be read (expected a plain file")


@pytest.mark.parametrize("benchmark", ["/etc/x", "../../elsewhere/amc", "**", "a" * 5000, "a\0b"])
def test_a_benchmark_that_an_imported_run_names_leads_to_no_other_file(run, benchmark):
    append(run, "q1", "whole")
    elsewhere = run.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "amc-0001.jsonl").write_text("damaged\n")
    assert find_answer_damage(run.path, benchmark) == []
    assert find_answers(run.path, benchmark, "q1") is None


def test_line_without_the_question_is_read_all_the_same(run):
    append(run, "q1", "whole")
    path = run.path / FOLDER / "amc-0001.jsonl"
    line = json.loads(path.read_text())
    path.write_text(
        json.dumps({name: line[name] for name in line if name not in {"seq", "crc", "question", "gold", "answer_kind"}})
        + "\n"
    )
    assert find_answers(run.path, "amc", "q1").text == ""


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
    del line["crc"], line["seq"]
    path.write_bytes(path.read_bytes() + encode_line(2, line | {"question_id": "q2"} | changes))
    assert [name for name, _ in iterate_answers(run.path, "amc")] == ["q1"]
    assert find_answer_damage(run.path, "amc") == [f"{FOLDER}/amc-0001.jsonl: 1 of its lines hold no answers."]
