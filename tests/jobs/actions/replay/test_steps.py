import dataclasses
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from exgrpo.jobs.actions.replay.facts import Outcome, ReplayError, Stage, compare, summed_up
from exgrpo.jobs.actions.replay.loss import replay_step
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo_core import recording
from exgrpo_core.config import EASY, LogProbRefresh, RetiredRule, RewardKind, SamplerCorrection
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from exgrpo_core.step_report import BucketCount, BufferEventKind
from tests.exgrpo_core.methods import outside_rules
from tests.jobs.actions.replay import solved_runs

AT = solved_runs.NUM_STEPS


def rows_of(root, steps=(AT,), run_id="solved"):
    with open_fresh_index(root, None) as database:
        return [row for step in steps for row in replay_step(database, root, run_id, step)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"weights": {"answer": 0.9, "format": 0.1}, "reward_kind": RewardKind.CONTINUOUS},
        {"weights": {"answer": 1.0, "random": 0.5}, "reward_kind": RewardKind.CONTINUOUS},
        {"normalize_by_std": True, "trajectory_selection": "lowest_nll"},
        {"experience_ratio": 0.0, "mask_range": EASY},
        {"question_selection": "exgrpo_released", "trajectory_selection": "lowest_total_entropy"},
        {"question_selection": "trinity", "retired": RetiredRule.NEVER, "off_policy_correction": "clip"},
        {"question_selection": "trl_replay", "retired": RetiredRule.NEVER, "off_policy_correction": "clip"},
        {
            "question_selection": "repo", "trajectory_selection": "newest", "retired": RetiredRule.NEVER,
            "replays_per_group": 2, "strategy_settings": {"min_stored": 2.0, "max_stored": 4.0},
        },
        {"question_selection": "rlep", "trajectory_selection": "highest_reward", "replays_per_group": 2},
        {"question_selection": "rollout_level", "retired": RetiredRule.NEVER, "off_policy_correction": "clip"},
        {"question_selection": "prompt_replay", "strategy_settings": {"cooldown_steps": 1.0}},
        {"question_selection": "uniform", "trajectory_selection": "random", "refresh": LogProbRefresh.ON_REPLAY},
        {"refresh": LogProbRefresh.ON_DUPLICATE, "candidate_budget": 2},
        {"replays_per_group": 2},
        {"review_interval": 2, "review_fraction": 1.0},
        {"start_pass_rate": 0.6},
        {"rollouts_ahead": True, "sampler_correction": SamplerCorrection.TRUNCATE},
        {
            "rollouts_ahead": True, "sampler_correction": SamplerCorrection.REJECT, "sampler_ratio_limit": 1.05,
        },
    ],
)  # fmt: skip
def test_no_step_of_a_true_run_differs(tmp_path, settings):
    num_steps = 8
    solved_runs.record(tmp_path, num_steps=num_steps, **settings)
    rows = rows_of(tmp_path, range(1, num_steps + 1))
    assert [row for row in rows if row.outcome is Outcome.DIFFERS] == []
    assert {row.stage for row in rows if row.outcome is Outcome.SAME} == {"selection", "reward", "advantages"}


@pytest.mark.parametrize(("name", "outcome"), [("Even", Outcome.SAME), ("EvenShort", Outcome.UNKNOWN)])
def test_what_a_methods_own_rule_stores_is_not_judged_without_the_tokens_it_reads(tmp_path, monkeypatch, name, outcome):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    solved_runs.record(tmp_path, question_selection=f"{outside_rules.__name__}:{name}")
    rows = rows_of(tmp_path)
    assert [row for row in rows if row.outcome is Outcome.DIFFERS] == []
    for compared in ("bucket after the step", "trajectories stored"):
        assert {row.outcome for row in rows if row.compared == compared} == {outcome}
        # The list of runs calls the method so, too.
        assert outcome is Outcome.SAME or all(
            row.note.startswith(f"{outside_rules.__name__}:{name} has") for row in rows if row.compared == compared
        )


def test_torch_is_not_loaded_below_the_loss_and_not_by_the_loss_of_another_trainer(tmp_path):
    solved_runs.record(tmp_path)
    loop_run(tmp_path, lambda groups: [rewards - rewards.mean() for rewards in groups])
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from exgrpo.jobs.actions.replay.loss import replay_step\n"
        "from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index\n"
        "root = Path(sys.argv[1])\n"
        "with open_fresh_index(root, None) as database:\n"
        f"    rows = [*replay_step(database, root, 'solved', {AT}), *replay_step(database, root, 'loop', 1)]\n"
        "print(*sorted({row.stage for row in rows}), 'torch' in sys.modules)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["advantages", "loss", "reward", "selection", "False"]


def mixed(report):
    return next(group for group in report.groups if group.has_replay)


def other_bucket(report):
    counts = report.buckets
    index = next(i for i, row in enumerate(counts) if row.bucket and row.num_questions)
    counts[index] = dataclasses.replace(counts[index], num_questions=counts[index].num_questions + 1)


def other_probability(report):
    report.buckets = [
        BucketCount(row.bucket, row.num_questions, row.probability * 0.99, row.num_drawn, row.overflow)
        for row in report.buckets
    ]


def other_counts(report):
    row = next(i for i, one in enumerate(report.buckets) if one.num_drawn)
    report.buckets[row] = dataclasses.replace(report.buckets[row], num_drawn=report.buckets[row].num_drawn + 1)


def other_random_state(report):
    state = report.random_state
    numbers = {"state": state["state"]["state"] ^ (0xFFFF << 60), "inc": state["state"]["inc"]}
    report.random_state = {**state, "state": numbers}


def change_selection(report, **change):
    report.selections[0] = dataclasses.replace(report.selections[0], **change)


def lost_candidate(report):
    index, row = next((i, row) for i, row in enumerate(report.selections) if row.scores.size > 1)
    kept = [row.chosen[0]]
    arrays = {
        name: getattr(row, name)[kept]
        for name in ("trajectory_ids", "rollout_steps", "num_tokens", "entropies", "nlls", "scores")
    }
    report.selections[index] = dataclasses.replace(row, chosen=(0,), **arrays)


def worst_chosen(report):
    index, row = next(
        (i, row) for i, row in enumerate(report.selections) if row.scores.size > 1 and np.ptp(row.scores) > 0
    )
    worst = int(np.argmax(row.scores))
    report.selections[index] = dataclasses.replace(row, chosen=(worst,))


def stale_entropy(report):
    row = report.selections[0]
    values = row.entropies.copy()
    values[row.chosen[0]] *= np.float32(1.01)
    change_selection(report, entropies=values)


def change_replay(report, **change):
    group = mixed(report)
    group.replays = (dataclasses.replace(group.replays[0], **change),)


def stored(report):
    return mixed(report).replays[0].experience


def change_stored(report, **change):
    change_replay(report, experience=stored(report)._replace(**change))


def token_changed(report):
    ids = stored(report).token_ids.copy()
    ids[-1] += 1
    change_stored(report, token_ids=ids)


def mask_off_by_one(report):
    group = next(group for group in report.groups if group.has_replay and group.replays[0].entropies.size > 1)
    [replay] = group.replays
    stored = replay.experience
    stored = stored._replace(token_ids=stored.token_ids[:-1], behavior_log_probs=stored.behavior_log_probs[:-1])
    group.replays = (
        dataclasses.replace(
            replay, experience=stored, old_log_probs=replay.old_log_probs[:-1], entropies=replay.entropies[:-1]
        ),
    )


def positive_log_prob(report):
    values = mixed(report).replays[0].old_log_probs.copy()
    values[0] = 0.5
    change_replay(report, old_log_probs=values)


def reward_of_fresh(report):
    item = mixed(report).trajectories[0]
    item.reward = 1.0 - item.reward


def text_of_fresh(report):
    item = mixed(report).trajectories[0]
    item.text = solved_runs.WRITINGS["wrong" if item.reward else "valid"]


def lose(report, kind):
    report.buffer_events.remove(next(event for event in report.buffer_events if event.kind is kind))


def advantage_of_one(report):
    mixed(report).advantages[-1] += np.float32(1e-6)


OF_A_REWARD = {"bucket after the step", "trajectories stored", "advantage"}
"""What else a wrong reward contradicts."""


@pytest.mark.parametrize(
    ("fault", "expected", "others"),
    [
        (other_bucket, {"bucket sizes"}, set()),
        (other_probability, {"bucket probabilities"}, set()),
        (other_counts, {"draws by bucket"}, set()),
        (lambda report: report.buckets.__setitem__(1, dataclasses.replace(report.buckets[1], overflow=3)),
         {"overflows by bucket"}, set()),
        (other_random_state, {"drawn questions"}, {"draws by bucket", "overflows by bucket"}),
        (lambda report: change_selection(report, bucket=1 + report.selections[0].bucket % 4),
         {"bucket of a drawn question"}, set()),
        (lost_candidate, {"candidates"}, set()),
        (worst_chosen, {"best score is chosen", "replayed is the chosen"}, {"tokens"}),
        (stale_entropy, {"entropy that chose", "score of a candidate"}, {"best score is chosen"}),
        (lambda report: change_selection(report, scores=report.selections[0].scores + np.float32(0.01)),
         {"score of a candidate"}, set()),
        (lambda report: change_selection(report, rollout_steps=report.selections[0].rollout_steps - 1),
         {"step that wrote a candidate"}, set()),
        (lambda report: change_stored(report, behavior_log_probs=stored(report).behavior_log_probs - np.float32(0.5)),
         {"same log-probs as at rollout"}, set()),
        (token_changed, {"same tokens as at rollout"}, set()),
        (mask_off_by_one, {"one value for each token"}, set()),
        (positive_log_prob, {"possible values"}, {"NLL that chose"}),
        (lambda report: change_stored(report, reward=0.0),
         {"reward of a replayed trajectory", "advantage"}, OF_A_REWARD),
        (reward_of_fresh, {"reward", "advantage"}, OF_A_REWARD),
        (lambda report: setattr(mixed(report).trajectories[0], "verdict", "unparsed"), {"verdict"}, set()),
        (text_of_fresh, {"reward", "verdict"}, set()),
        (advantage_of_one, {"advantage"}, set()),
        (partial(lose, kind=BufferEventKind.MOVED), {"bucket after the step"}, set()),
        (partial(lose, kind=BufferEventKind.INSERTED), {"trajectories stored"}, set()),
    ],
)  # fmt: skip
def test_planted_fault_is_found_where_it_is_and_nothing_else_is_reported(tmp_path, fault, expected, others):
    def change(report):
        if report.step == AT:
            fault(report)

    solved_runs.record(tmp_path, change)
    rows = [row for row in rows_of(tmp_path, range(1, AT + 1)) if row.outcome is Outcome.DIFFERS]
    assert {row.step for row in rows} == {AT}
    assert expected <= {row.compared for row in rows} <= expected | others


def test_first_difference_is_named(tmp_path):
    seen = {}

    def change(report):
        if report.step == AT:
            token_changed(report)
            replay = stored(report)
            seen.update(number=replay.trajectory_id, question=replay.question_index, last=replay.token_ids.size - 1)

    solved_runs.record(tmp_path, change)
    [row] = [row for row in rows_of(tmp_path) if row.outcome is Outcome.DIFFERS]
    assert (row.question_index, row.trajectory_id, row.token) == (seen["question"], seen["number"], seen["last"])
    assert row.recorded == row.computed + 1
    assert row.num_different == 1


def test_values_that_differ_are_counted_as_those_that_are_compared():
    pairs = ([1.0, 2.0, np.nan, 4.0], [1.0, 9.0, np.nan, 5.0]), ([1.0, 2.0], [1.0, 2.0]), ([0.5, np.nan], [1.5, 0.0])
    facts = [compare(Stage.UPDATE, "weights", *map(np.array, pair)) for pair in pairs]
    [row] = summed_up(3, [*facts, compare(Stage.UPDATE, "weights", 1.0, 2.0)])
    assert (row.num_compared, row.num_different) == (4 + 2 + 2 + 1, 2 + 0 + 2 + 1)


def loop_run(root, advantages_of, groups=((1.0, 0.0, 0.0, 1.0), (0.0, 0.0, 1.0, 0.0), (0.25, 0.5, 1.0, 0.0))):
    """Record a step of a loop; `advantages_of` gives the advantages of all groups, None for those not recorded."""
    given = advantages_of([np.array(group) for group in groups])
    trajectories = [
        {"prompt": f"question {number}", "response": "7", "reward": reward, "advantage": advantage}
        for number, (rewards, advantages) in enumerate(zip(groups, given, strict=True))
        for reward, advantage in zip(rewards, advantages, strict=True)
    ]
    with recording.start("loop", {}, root, run_id="loop") as run:
        run.log(1, {"loss": 0.5}, trajectories=trajectories)


def row_of_loop(root):
    [row] = [row for row in rows_of(root, [1], "loop") if row.stage is Stage.ADVANTAGES]
    return row


def whole(values):
    return np.concatenate(values)


@pytest.mark.parametrize(
    ("formula", "name"),
    [
        (lambda groups: [rewards - rewards.mean() for rewards in groups], "Dr.GRPO"),
        (lambda groups: [(r - r.mean()) / (r.std(ddof=1) + 1e-4) for r in groups], "0.0001), sample"),
        (lambda groups: [(r - r.mean()) / (r.std() + 1e-6) for r in groups], "1e-06), population"),
        (lambda groups: [r - (r.sum() - r) / (r.size - 1) for r in groups], "RLOO"),
        (lambda groups: [(r - r.mean()) / (whole(groups).std(ddof=1) + 1e-4) for r in groups], "scale_rewards=batch"),
        (
            lambda groups: [(r - whole(groups).mean()) / (whole(groups).std(ddof=1) + 1e-8) for r in groups],
            "(REINFORCE++)",
        ),
    ],
)
def test_formula_of_another_programs_advantages_is_named(tmp_path, formula, name):
    loop_run(tmp_path, lambda groups: [values.astype(np.float32).tolist() for values in formula(groups)])
    row = row_of_loop(tmp_path)
    assert row.outcome is Outcome.SAME
    assert name in row.note.partition(";")[0]


def test_advantages_of_equal_rewards_are_those_of_no_formula(tmp_path):
    loop_run(tmp_path, lambda groups: [np.zeros(4) for _ in groups], [(1.0,) * 4, (0.0,) * 4])
    row = row_of_loop(tmp_path)
    assert row.outcome is Outcome.UNKNOWN
    assert row.note == "Each group has equal rewards and advantages of 0, which every formula gives."


def test_first_group_that_no_formula_gives_is_named(tmp_path):
    def wrong_in_the_third(groups):
        return [(rewards - rewards.mean()) * (3 if number == 2 else 1) for number, rewards in enumerate(groups)]

    loop_run(tmp_path, wrong_in_the_third)
    row = row_of_loop(tmp_path)
    assert row.outcome is Outcome.DIFFERS
    assert (row.question_index, row.recorded, row.computed) == (2, -0.5625, -0.1875)
    assert "2 of 3" in row.note
    assert (row.num_compared, row.num_different) == (3, 1)


def test_no_formula_is_nearest_where_none_gives_a_group(tmp_path):
    loop_run(tmp_path, lambda groups: [(rewards + 1) * 3 for rewards in groups])
    row = row_of_loop(tmp_path)
    assert row.note.startswith("No formula gives any of the groups; ")
    assert "nearest" not in row.note
    assert (row.outcome, row.num_compared, row.num_different) == (Outcome.DIFFERS, 3, 3)


def test_what_a_loop_did_not_record_is_said_with_the_argument_that_records_it(tmp_path):
    loop_run(tmp_path, lambda groups: [[None] * 4 for _ in groups])
    row = row_of_loop(tmp_path)
    assert row.outcome is Outcome.UNKNOWN
    assert "'advantage': value" in row.note


def test_step_that_was_not_recorded_is_one_sentence(tmp_path):
    solved_runs.record(tmp_path)
    with pytest.raises(ReplayError, match="no trajectories of step 99"):
        rows_of(tmp_path, [99])
