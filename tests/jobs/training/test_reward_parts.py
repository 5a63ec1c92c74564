import re

import numpy as np
import psutil
import pytest

from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.base import PARTS
from exgrpo.jobs.specs.train import SpecError, parse_spec
from exgrpo.jobs.tasks.grading.reward_function import Response, Verdict
from exgrpo.jobs.tasks.questions import build_question
from exgrpo.jobs.training.reward_parts import _PARTS, CodeReward, open_reward_parts
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from exgrpo_core.step_report import METRIC_LABELS
from tests.step_reports import make_report

pytestmark = pytest.mark.slow

OUTCOMES = ("correct", "wrong", "unparsed")


class ByOutcome:
    def grade(self, questions, _responses):
        outcomes = [OUTCOMES[index % 3] for index in range(len(questions))]
        return [Verdict(float(outcome == "correct"), outcome) for outcome in outcomes]


def responses(*token_ids):
    return [Response("", np.array(ids, dtype=np.int32), is_truncated=False) for ids in token_ids]


def rewards(weights, given):
    with open_reward_parts(ByOutcome(), weights) as parts:
        return [verdict.reward for verdict in parts.grade([None] * len(given), given)]


def test_every_part_is_computed_and_has_a_metric():
    assert _PARTS.keys() == PARTS.keys(), "_PARTS of jobs/training/reward_parts.py: expected those of PARTS."
    labels = {part: METRIC_LABELS.get(f"reward/{part}") for part in PARTS}
    assert labels == {part: f"Reward part: {part}" for part in PARTS}, "exgrpo_core/step_report.py: name each part."


def test_reward_is_the_weighted_sum_and_outcomes_stay_those_of_the_answer():
    with open_reward_parts(ByOutcome(), {"answer": 1.0, "format": 0.25}) as parts:
        verdicts = parts.grade([None] * 3, responses([1], [2], [3]))
        assert [(verdict.reward, verdict.outcome) for verdict in verdicts] == [
            (1.25, "correct"), (0.25, "wrong"), (0.0, "unparsed"),
        ]  # fmt: skip
        assert verdicts[1].parts == {"answer": 0.0, "format": 1.0}
        parts.grade([None], responses([1]))
        assert parts.take_metrics() == {"reward/answer": 2 / 4, "reward/format": 3 / 4}
        assert parts.take_metrics() == {}


def test_random_rewards_are_drawn_again_alike_and_depend_on_no_response_alone():
    given = responses(*[[index] for index in range(1000)])
    drawn = rewards({"random": 1.0}, given)
    assert drawn == rewards({"random": 1.0}, given)
    assert 0.4 < np.mean(drawn) < 0.6
    others = rewards({"random": 1.0}, [*given[:-1], *responses([7, 7])])
    assert 0.4 < np.mean([first != second for first, second in zip(drawn, others, strict=True)]) < 0.6


@pytest.mark.parametrize(
    ("rewards", "field"),
    [
        ({"answer": 1.0, "style": 0.5}, "data.rewards"), ({"answer": 1.0, "formal": 0.5}, "data.rewards"),
        ({}, "data.rewards"), ({"answer": float("nan")}, "data.rewards.answer"),
        ({"answer": 1.0, "format": 0.5}, "data.rewards"), ({"format": 0.5}, "data.rewards"),
    ],
)  # fmt: skip
def test_parts_that_cannot_be_are_refused(rewards, field):
    with pytest.raises(SpecError) as refused:
        parse_spec({"data": {"rewards": rewards}}, "test")
    assert set(refused.value.fields) == {field}


MODULE = "tests.jobs.training.outside_rewards"
SHORTNESS, ODD = f"{MODULE}:shortness", f"{MODULE}:odd"


def spec(rewards):
    algorithm = {"reward_kind": "continuous", "start_pass_rate": None}
    data = {"source": "word_problems", "rewards": rewards}
    return parse_spec({"model": {"source": "mine"}, "algorithm": algorithm, "data": data}, "test")


def test_code_is_refused_where_the_machine_does_not_allow_its_module(monkeypatch):
    with pytest.raises(SpecError) as refused:
        spec({"answer": 1.0, SHORTNESS: 0.5})
    assert refused.value.fields == ("data.rewards",)
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, MODULE)
    assert spec({"answer": 1.0, SHORTNESS: 0.5}).data.rewards == {"answer": 1.0, SHORTNESS: 0.5}
    with pytest.raises(SpecError):
        parse_spec({"data": {"rewards": {SHORTNESS: 1.0}}}, "test")


def test_call_that_fails_costs_its_own_reward_alone():
    code = CodeReward(ODD, seconds_per_call=1.0)
    said = ["fine", "raise", "fine", "hang", "fine", "die", "infinite", "text", "fine"]
    rewards = code.rewards([("q", "a", response) for response in said])
    code.close()
    assert rewards == [0.5, None, 0.5, None, 0.5, None, None, None, 0.5]


FAULTS = {
    "raise": "RuntimeError: RuntimeError", "key": "KeyError: 'score'", "none": "it returned nothing, expected a number",
    "text": "it returned 'no number', expected a number", "nan": "it returned nan, expected a finite number",
    "die": "its process ended", "hang": "a call took longer than 1 s",
}  # fmt: skip


def reported_step(parts, texts):
    given = [Response(text, np.array([1], dtype=np.int32), is_truncated=False) for text in texts]
    parts.grade([build_question(0, "q", "q", "a", [1], {})] * len(given), given)
    report = make_report(1)
    parts.complete(report)
    return report


@pytest.mark.parametrize("said", ["raise", "text", "nan", "die", "hang"])
def test_run_whose_every_first_call_fails_stops_with_what_happened(monkeypatch, said):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, MODULE)
    sentence = f"{ODD} gave no reward: {FAULTS[said]}, in every call of the first step"
    with open_reward_parts(ByOutcome(), {"answer": 1.0, ODD: 1.0}) as parts:
        parts._codes[ODD]._seconds = 1.0
        with pytest.raises(TrainingError, match=re.escape(sentence)) as stopped:
            reported_step(parts, [said, said])
    assert stopped.value.fields == ("data.rewards",)


def test_first_fault_of_each_kind_is_logged_with_its_traceback_and_a_notice_of_its_step(monkeypatch, caplog):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, MODULE)
    with open_reward_parts(ByOutcome(), {"answer": 1.0, ODD: 1.0}) as parts:
        first = reported_step(parts, ["fine", "key", "key", "none"])
        second = reported_step(parts, ["key", "raise", "none"])
    named = [FAULTS[name] for name in ("key", "none", "raise")]
    texts = [f"{ODD} gave no reward: {fault}; that counts as 0, and the log has more." for fault in named]
    assert [notice for notice in first.notices if ODD in notice] == texts[:2]
    assert [notice for notice in second.notices if ODD in notice] == texts[2:]
    assert first.metrics["reward/failed"] == 3 / 4
    assert [sum(fault in line for line in caplog.messages) for fault in named] == [1, 1, 1]
    assert 'outside_rewards.py", line' in caplog.text


def test_closing_ends_the_process():
    code = CodeReward(SHORTNESS)
    before = {child.pid for child in psutil.Process().children()}
    assert code.rewards([("q", "a", "abc")]) == [0.25]
    started = [child for child in psutil.Process().children() if child.pid not in before]
    (process,) = [child for child in started if "spawn_main" in " ".join(child.cmdline())]
    code.close()
    assert not process.is_running()


@pytest.mark.parametrize("name", ["nothing", "NOT_A_FUNCTION"])
def test_what_is_no_function_is_said_before_anything_is_rewarded(name):
    with pytest.raises(TrainingError):
        CodeReward(f"{MODULE}:{name}").rewards([("q", "a", "r")])


def test_parts_by_code_are_weighed_and_have_curves_and_failures_counted(monkeypatch):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, MODULE)
    questions = [build_question(0, "q", "1+1?", "2", [1], {})] * 2
    responses = [Response(text, np.zeros(1, dtype=np.int32), is_truncated=False) for text in ("abc", "raise")]
    with open_reward_parts(ByOutcome(), {"answer": 1.0, SHORTNESS: 4.0, ODD: 1.0}) as parts:
        rewards = [verdict.reward for verdict in parts.grade(questions, responses)]
        metrics = parts.take_metrics()
    assert rewards == pytest.approx([1 + 4 / 4 + 0.5, 4 / 6])
    assert metrics == pytest.approx(
        {"reward/answer": 0.5, "reward/code_1": (1 / 4 + 1 / 6) / 2, "reward/code_2": 0.25, "reward/failed": 0.25}
    )
