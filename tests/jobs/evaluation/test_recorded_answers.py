import json

import pytest

from jobs.evaluation.answer_log import AnsweredQuestion, AnswerLog
from jobs.evaluation.generation import Sample
from jobs.evaluation.questions import BenchmarkQuestion
from jobs.evaluation.recorded_answers import FOLDER, find_answers
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
    outcomes = [SideBySide(Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSED)]
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
    assert answer.outcomes == {"paper": "correct", "training": "wrong", "corrected": "unparsed"}


def test_question_that_is_not_finished_or_whose_line_is_cut_short_has_no_answers(run):
    append(run, "q1", "whole")
    path = run.path / FOLDER / "amc-0001.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert find_answers(run.path, "amc", "q1") is None
    assert find_answers(run.path, "amc", "q2") is None
    assert find_answers(run.path, "minerva", "q1") is None


def test_line_without_the_question_is_read_all_the_same(run):
    append(run, "q1", "whole")
    path = run.path / FOLDER / "amc-0001.jsonl"
    line = json.loads(path.read_text())
    path.write_text(
        json.dumps({name: line[name] for name in line if name not in {"seq", "crc", "question", "gold", "answer_kind"}})
        + "\n"
    )
    assert find_answers(run.path, "amc", "q1").text == ""
