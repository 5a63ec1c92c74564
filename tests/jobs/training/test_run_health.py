import math

import numpy as np
import pytest

from exgrpo.db.rows.display_names import escape_control_characters
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import iterate_events
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.training.engines.tokenizer import unknown_token
from exgrpo.jobs.training.run_health import VERL_MAX_GAP, Reason, RunHealth, unknown_token_notices
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import NUM_RECENT_STEPS, StepReport
from exgrpo_core.types import RolloutGroup
from tests.exgrpo_core.builders import group, question, trajectory
from tests.faults.small_training import EightNumbers, StepControl, small_spec, train
from tests.jobs.training.engines.tiny_models import tiny_tokenizer

pytestmark = pytest.mark.slow

UNKNOWN = 9
QUESTIONS = [question(0), question(1)]


class WithGaps(EightNumbers):
    """Its trainer differs from its sampler, in each step as much as the next of `gaps` says."""

    def __init__(self, *gaps):
        super().__init__()
        self.gaps = list(gaps)

    def update(self, mini_batches, objective):
        return super().update(mini_batches, objective) | {"generator/log_prob_gap": self.gaps.pop(0)}


@pytest.mark.parametrize(("step", "gap"), [(1, 0.051), (2, math.nan), (3, math.inf)])
def test_a_run_whose_sampler_is_another_model_ends_at_one_of_its_first_steps_which_is_recorded(tmp_path, step, gap):
    run = RunDirectory.create(tmp_path, small_spec(4, 9))
    with pytest.raises(
        TrainingError, match=f"step {step}: After weight exchange {step} of this attempt, .* gap {gap:.3g} "
    ):
        train(run, engine=WithGaps(*[0.0] * (step - 1), gap))
    assert [event["step"] for event in iterate_events(run, "step")] == [*range(1, step + 1)]
    assert not any(run.checkpoints_path.iterdir())


@pytest.mark.parametrize("later", [0, 2])
def test_a_resumed_run_ends_at_its_first_steps_too(tmp_path, later):
    run = RunDirectory.create(tmp_path, small_spec(8, 9))
    assert train(run, StepControl(stop_at=4), WithGaps(*[0.0] * 4)) is RunStatus.STOPPED
    with pytest.raises(TrainingError, match=f"step {5 + later}: After weight exchange {1 + later} of this attempt"):
        train(run, engine=WithGaps(*[0.0] * later, 0.2))


def test_a_later_gap_is_a_notice_once_that_names_its_exchange(tmp_path):
    run = RunDirectory.create(tmp_path, small_spec(9, 9))
    assert train(run, StepControl(stop_at=2), WithGaps(0.0, 0.0)) is RunStatus.STOPPED
    assert train(run, engine=WithGaps(0.0, 0.0, 0.0, VERL_MAX_GAP, 0.2, 0.4, 0.0)) is RunStatus.FINISHED
    notices = [(step["step"], text) for step in iterate_events(run, "step") for text in step["notices"]]
    ((step, text),) = [notice for notice in notices if "log-probs" in notice[1]]
    assert (step, "After weight exchange 5 of this attempt" in text) == (7, True)


@pytest.mark.parametrize(("gap", "correction"), [(0.51, "reject"), (math.nan, "none")])
def test_a_gap_that_no_numbers_explain_ends_a_run_at_any_step(tmp_path, gap, correction):
    spec = apply_settings(small_spec(9, 9), [f"algorithm.sampler_correction={correction}"])
    with pytest.raises(TrainingError, match="step 6: After weight exchange 6 of this attempt"):
        train(RunDirectory.create(tmp_path, spec), engine=WithGaps(*[0.0] * 5, gap))


def test_a_run_with_a_corrected_sampler_goes_on_with_a_notice(tmp_path):
    spec = apply_settings(small_spec(1), ["algorithm.sampler_correction=reject"])
    run = RunDirectory.create(tmp_path, spec)
    assert train(run, engine=WithGaps(0.2)) is RunStatus.FINISHED
    (step,) = iterate_events(run, "step")
    assert len(step["notices"]) == 1


@pytest.mark.parametrize(("version", "num_notices"), [(1, 0), (2, 1)])
def test_the_gap_to_the_policy_that_generated_ahead_is_no_fault(version, num_notices):
    written = group(0, [1.0, 0.0])
    for item in written.trajectories:
        item.rollout_step, item.policy_version = 3, version
    report = StepReport(3, is_replay_open=False, groups=[written], metrics={"generator/log_prob_gap": 0.2})
    health = RunHealth(QUESTIONS, UNKNOWN, VERL_MAX_GAP, requires_think_end=False, is_corrected=num_notices == 1)
    health.look_at(report)
    health.check_gap(report)
    assert len(report.notices) == num_notices


def look(steps, requires_think_end=False, questions=QUESTIONS):
    health = RunHealth(questions, UNKNOWN, VERL_MAX_GAP, requires_think_end=requires_think_end, is_corrected=False)
    found = []
    for number, groups in enumerate(steps, start=1):
        report = StepReport(number, is_replay_open=False, groups=groups)
        health.look_at(report)
        found.append(report.notices)
    return found


def answered(text="", verdict="wrong", is_truncated=False, tokens=(3, 4), reward=0.0):
    made = trajectory(0, tokens, reward)
    made.text, made.verdict, made.is_truncated = text, verdict, is_truncated
    return made


@pytest.mark.parametrize(
    ("most", "reason"),
    [
        ({"verdict": "unparsed"}, Reason.NO_BOX),
        ({"verdict": "unparsed", "text": "<think> \\boxed{7}"}, Reason.OPEN_THOUGHT),
        ({"verdict": "unparsed", "text": "</think> 7"}, Reason.NO_BOX),
        ({"verdict": "unparsed", "is_truncated": True}, Reason.TRUNCATED),
        ({"verdict": "wrong", "is_truncated": True}, Reason.WRONG),
        ({"verdict": "unparsed", "tokens": (3, UNKNOWN)}, Reason.UNKNOWN_TOKENS),
        ({"verdict": "timeout"}, Reason.NOT_GRADED),
        ({"verdict": ""}, Reason.WRONG),
    ],
)
def test_no_reward_for_steps_is_told_once_with_the_reason_most_seen(most, reason):
    requires_think_end = reason is Reason.OPEN_THOUGHT or "text" in most
    other = answered() if reason is not Reason.WRONG else answered(verdict="crash")
    groups = [RolloutGroup(QUESTIONS[0], [answered(**most), answered(**most), other])]
    found = look([groups] * (2 * NUM_RECENT_STEPS), requires_think_end)
    assert [step for step, notices in enumerate(found, start=1) for _ in notices] == [NUM_RECENT_STEPS]
    assert reason in found[NUM_RECENT_STEPS - 1][0]


def test_one_reward_begins_the_count_again():
    nothing = [RolloutGroup(QUESTIONS[0], [answered(), answered()])]
    some = [RolloutGroup(QUESTIONS[0], [answered(), answered(reward=1.0)])]
    steps = [nothing] * (NUM_RECENT_STEPS - 1) + [some] + [nothing] * (NUM_RECENT_STEPS - 1)
    assert not any(look(steps))


def test_steps_whose_groups_have_equal_rewards_are_told_once_and_a_step_of_demonstrations_is_not():
    equal = [
        RolloutGroup(QUESTIONS[0], [answered(reward=1.0)] * 2),
        RolloutGroup(QUESTIONS[1], [answered(), answered()]),
    ]
    found = look([equal] * (2 * NUM_RECENT_STEPS))
    assert [step for step, notices in enumerate(found, start=1) if notices] == [NUM_RECENT_STEPS]
    assert not any(look([[]] * (2 * NUM_RECENT_STEPS)))


def test_the_share_of_unknown_tokens_in_prompts_is_a_notice_of_the_first_step():
    questions = [question(0), question(UNKNOWN)]
    first, second = look([[], []], questions=questions)
    assert first == unknown_token_notices(questions, UNKNOWN)
    assert "16.7%" in first[0]
    assert not second
    assert not unknown_token_notices(questions, None)
    assert first[0] == escape_control_characters(first[0])


def test_a_prompt_that_cannot_be_read_is_the_reason_for_no_reward():
    groups = [RolloutGroup(question(UNKNOWN), [answered(), answered()])]
    assert Reason.UNKNOWN_TOKENS in look([groups] * NUM_RECENT_STEPS)[-1][0]


def test_the_unknown_token_is_found_where_a_tokenizer_has_one():
    chains = make_tokenizer()
    assert unknown_token(chains) in chains("\u00f8", add_special_tokens=False)["input_ids"]
    tiny = tiny_tokenizer()
    assert unknown_token(tiny) == tiny("\u00f8")["input_ids"][0]
    tiny.unk_token = tiny.eos_token
    assert unknown_token(tiny) is None
    assert np.isscalar(unknown_token(chains))
