import numpy as np
import pytest

from exgrpo_core.step_report import METRIC_LABELS
from jobs.grading.reward_function import Response, Verdict
from jobs.specs.reward_parts import PARTS
from jobs.specs.train import SpecError, load_preset, parse_spec
from jobs.training.reward_parts import _PARTS, open_reward_parts

OUTCOMES = ("correct", "wrong", "unparsed")


class ByOutcome:
    """Gives the outcomes in turn, and 1 for correct."""

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
    ("rewards", "sentence"),
    [
        ({"answer": 1.0, "style": 0.5}, "data.rewards: there is no 'style'; expected one of answer, format, random"),
        ({"answer": 1.0, "formal": 0.5}, "did you mean format?"),
        ({}, "expected some parts"),
        ({"answer": float("nan")}, "data.rewards.answer: expected a finite number"),
        ({"answer": 1.0, "format": 0.5}, "need algorithm.reward_kind continuous"),
        ({"format": 0.5}, "expected one built-in part of weight 1"),
    ],
)
def test_parts_that_cannot_be_are_refused(rewards, sentence):
    with pytest.raises(SpecError, match=sentence):
        parse_spec({"data": {"rewards": rewards}}, "test")


@pytest.mark.parametrize("engine", ["embedded", "verl"])
def test_several_parts_need_continuous_rewards_on_both_engines(engine):
    several = {"engine": engine, "data": {"source": "word_problems", "rewards": {"answer": 1.0, "format": 0.2}}}
    continuous = several | {"algorithm": {"reward_kind": "continuous", "start_pass_rate": None}}
    assert parse_spec(continuous, "test").data.rewards == {"answer": 1.0, "format": 0.2}
    with pytest.raises(SpecError, match=r"need algorithm\.reward_kind continuous"):
        parse_spec(several, "test")


def test_controls_differ_from_on_policy_training_in_the_reward_alone():
    base = load_preset("chains-on-policy").model_dump(mode="json")
    for name, part in (("chains-random-reward", "random"), ("chains-format-reward", "format")):
        control = load_preset(name).model_dump(mode="json")
        assert control["data"] == base["data"] | {"rewards": {part: 1.0}}
        assert {field for field in base if base[field] != control[field]} == {"name", "preset", "data"}
