import numpy as np
import psutil
import pytest

from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from jobs.grading.reward_function import Response, Verdict
from jobs.runs.control import TrainingError
from jobs.specs.train import SpecError, parse_spec
from jobs.tasks.questions import build_question
from jobs.training.code_reward import CodeReward
from jobs.training.reward_parts import open_reward_parts

MODULE = "tests.jobs.training.outside_rewards"
SHORTNESS, ODD = f"{MODULE}:shortness", f"{MODULE}:odd"


class AllCorrect:
    def grade(self, questions, _responses):
        return [Verdict(1.0, "correct") for _ in questions]


def spec(rewards):
    algorithm = {"reward_kind": "continuous", "start_pass_rate": None}
    return parse_spec({"algorithm": algorithm, "data": {"source": "word_problems", "rewards": rewards}}, "test")


def test_code_is_refused_where_the_machine_does_not_allow_its_module(monkeypatch):
    with pytest.raises(SpecError, match=r"data\.rewards: .* is code from outside the workbench"):
        spec({"answer": 1.0, SHORTNESS: 0.5})
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, MODULE)
    assert spec({"answer": 1.0, SHORTNESS: 0.5}).data.rewards == {"answer": 1.0, SHORTNESS: 0.5}
    with pytest.raises(SpecError, match=r"others need algorithm\.reward_kind continuous"):
        parse_spec({"data": {"rewards": {SHORTNESS: 1.0}}}, "test")


def test_call_that_fails_costs_its_own_reward_alone():
    code = CodeReward(ODD, seconds_per_call=1.0)
    said = ["fine", "raise", "fine", "hang", "fine", "die", "infinite", "text", "fine"]
    rewards = code.rewards([("q", "a", response) for response in said])
    code.close()
    assert rewards == [0.5, None, 0.5, None, 0.5, None, None, None, 0.5]


def test_closing_ends_the_process():
    code = CodeReward(SHORTNESS)
    before = {child.pid for child in psutil.Process().children()}
    assert code.rewards([("q", "a", "abc")]) == [0.25]
    (process,) = [
        child
        for child in psutil.Process().children()
        if child.pid not in before and "spawn_main" in " ".join(child.cmdline())
    ]
    code.close()
    assert not process.is_running()


@pytest.mark.parametrize(
    ("name", "sentence"), [("nothing", "cannot be imported"), ("NOT_A_FUNCTION", "cannot reward: it is no function")]
)
def test_what_is_no_function_is_said_before_anything_is_rewarded(name, sentence):
    with pytest.raises(TrainingError, match=sentence):
        CodeReward(f"{MODULE}:{name}").rewards([("q", "a", "r")])


def test_parts_by_code_are_weighed_and_have_curves_and_failures_counted(monkeypatch):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, MODULE)
    questions = [build_question(0, "q", "1+1?", "2", [1], {})] * 2
    responses = [Response(text, np.zeros(1, dtype=np.int32), is_truncated=False) for text in ("abc", "raise")]
    with open_reward_parts(AllCorrect(), {"answer": 1.0, SHORTNESS: 4.0, ODD: 1.0}) as parts:
        rewards = [verdict.reward for verdict in parts.grade(questions, responses)]
        metrics = parts.take_metrics()
    assert rewards == pytest.approx([1 + 4 / 4 + 0.5, 1 + 4 / 6])
    assert metrics == pytest.approx(
        {"reward/answer": 1.0, "reward/code_1": (1 / 4 + 1 / 6) / 2, "reward/code_2": 0.25, "reward/failed": 0.25}
    )
