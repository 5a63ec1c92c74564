import json

import pytest

from exgrpo.db.queries.runs import get_run
from exgrpo.jobs.actions.verification import verify_run
from exgrpo.jobs.evaluation.recorded_answers import (
    FOLDER,
    AnswerLog,
    encode_line,
    find_answer_damage,
    find_answers,
    iterate_answers,
)
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo_core.faults import Fault, FaultKind, describe_fault
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.evaluation.analysis.recorded_samples import append

pytestmark = pytest.mark.slow

NAME = f"{FOLDER}/sums-0001.jsonl"


@pytest.fixture
def evaluation(tmp_path):
    spec = EvalSpec(model=EvalModelSpec(source="m"), benchmarks=(BenchmarkChoice(name="sums", source="sums.jsonl"),))
    run = RunDirectory.create(tmp_path / "runs", spec)
    run.claim_attempt()
    for number in range(3):
        append(run.path, f"q{number}", [("4", -0.5), ("5", None)])
    return run


@pytest.fixture
def path(evaluation):
    return evaluation.path / NAME


def test_question_is_read_back_with_its_answers_and_the_newest_attempt_counts(evaluation):
    append(evaluation.path, "q11", [("7", None)])
    append(evaluation.path, "q1", [("5", -2.5)], attempt=2)
    answers = find_answers(evaluation.path, "sums", "q1")
    assert (answers.question, answers.gold) == ("?", "4")
    (answer,) = answers.samples
    assert (answer.text, answer.num_tokens, answer.is_truncated, answer.log_prob) == ("so \\boxed{5}", 2, False, -2.5)
    assert find_answers(evaluation.path, "sums", "q0").outcomes[0] == ("correct", "wrong")


@pytest.mark.parametrize("benchmark", ["../../elsewhere/sums", "**", "a\0b"])
def test_a_benchmark_that_an_imported_run_names_leads_to_no_other_file(evaluation, benchmark):
    elsewhere = evaluation.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "sums-0001.jsonl").write_text("damaged\n")
    assert find_answer_damage(evaluation.path, benchmark) == []
    assert find_answers(evaluation.path, benchmark, "q1") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"question_id": 5}, {"seed": None}, {"samples": 5},
        {"samples": [{"text": 5, "num_tokens": 1, "is_truncated": False}]}, {"samples": []}, {"outcomes": [[1, 2]]},
        {"gold": {}},
    ],
)  # fmt: skip
def test_a_line_of_another_shape_under_a_right_checksum_is_named_and_passed_over(evaluation, path, changes):
    line = json.loads(path.read_text().splitlines()[0])
    del line["crc"]
    path.write_bytes(path.read_bytes() + encode_line(line | {"question_id": "q3"} | changes))
    assert [name for name, _ in iterate_answers(evaluation.path, "sums")] == ["q0", "q1", "q2"]
    (fault,) = find_answer_damage(evaluation.path, "sums")
    assert (fault.kind, fault.file) == (FaultKind.UNREADABLE, NAME)


def test_every_changed_byte_is_noticed_and_no_changed_answer_is_read(evaluation, path):
    whole = AnswerLog(evaluation.path, "sums", 2).read()
    assert find_answer_damage(evaluation.path) == []
    content = path.read_bytes()
    for at in range(len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        assert all(whole[name] == answered for name, answered in AnswerLog(evaluation.path, "sums", 2).read().items())
        (first, *_) = find_answer_damage(evaluation.path)
        assert first.file == NAME, at


def test_last_line_that_a_kill_cut_is_asked_again_without_a_word(evaluation, path):
    path.write_bytes(path.read_bytes()[:-5])
    assert find_answers(evaluation.path, "sums", "q2") is None
    assert set(AnswerLog(evaluation.path, "sums", 2).read()) == {"q0", "q1"}
    assert find_answer_damage(evaluation.path) == []


def test_damage_is_said_by_verify_on_the_run_s_page_and_on_resume(evaluation, path, caplog):
    path.write_bytes(path.read_bytes().replace(b"boxed{5}", b"boxed{6}", 1))
    write_outcome(evaluation.attempt_path(1), RunStatus.FINISHED, "")
    fault = Fault(FaultKind.DAMAGED_LINE, NAME, (0,))
    sentence = describe_fault(fault)
    assert [damage.fault for damage in verify_run(evaluation)] == [fault]
    with open_fresh_index(evaluation.path.parent, None) as database:
        assert sentence in get_run(database, evaluation.run_id).faults
    assert set(AnswerLog(evaluation.path, "sums", 2).read()) == {"q1", "q2"}
    assert sentence in caplog.text


def test_next_attempt_writes_a_file_of_its_own(evaluation, path):
    before = path.read_bytes()
    for name in ("q9", "q10"):
        append(evaluation.path, name, [("4", None)], attempt=2)
    lines = path.with_name("sums-0002.jsonl").read_text().splitlines()
    assert [json.loads(line)["question_id"] for line in lines] == ["q9", "q10"]
    assert path.read_bytes() == before
    assert find_answer_damage(evaluation.path) == []
