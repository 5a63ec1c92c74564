import dataclasses
from functools import partial

import numpy as np
import pytest

from exgrpo.jobs.actions.replay.facts import Outcome
from exgrpo.jobs.actions.replay.loss import replay_step
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo_core import algorithm
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from exgrpo_core.policy_optimization import objective
from exgrpo_core.types import SeenMiniBatch
from tests.exgrpo_core.methods import outside_rules
from tests.jobs.actions.replay.trained_runs import Kept, trained

AT = 4
BOTH = ("algorithm.kl_coefficient=0.01", "algorithm.entropy_coefficient=0.001", "optim.learning_rate=0.003")


def rows_of(root, run_id, steps=(AT,), settings=()):
    with open_fresh_index(root, None) as database:
        return [row for step in steps for row in replay_step(database, root, run_id, step, settings)]


def different(rows):
    return {row.compared for row in rows if row.outcome is Outcome.DIFFERS}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    root = tmp_path_factory.mktemp("kept")
    return root, Kept(root, *BOTH)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        (),
        BOTH,
        ('model.lora={"rank": 2}',),
        ("algorithm.loss_aggregation=token_mean", "algorithm.fresh_objective=gspo", "algorithm.clipping=always"),
        ("algorithm.question_selection=prioritized_rank", "algorithm.mini_batch_size=2", "optim.learning_rate=0.01"),
        ("algorithm.off_policy_correction=m2po", "algorithm.question_selection=bapo", "optim.learning_rate=0.01"),
        ("algorithm.normalize_by_std=true", "algorithm.corrects_importance=false", "algorithm.entropy_coefficient=0"),
        ("algorithm.experience_ratio=0", 'algorithm.mask_range={low: 0, high: 0.5, includes_low: false, '
         'includes_high: true}'),
        ('data.rewards={"answer": 0.9, "format": 0.1}', "algorithm.reward_kind=continuous",
         "algorithm.start_pass_rate=null", "algorithm.off_policy_correction=truncated"),
        ("algorithm.uses_external_experience=true", "external_column=text", "algorithm.experience_ratio=0"),
    ],
)  # fmt: skip
def test_no_loss_of_a_true_run_differs(tmp_path, settings):
    trained(tmp_path, *settings)
    rows = rows_of(tmp_path, "trained", range(1, 6))
    assert [row for row in rows if row.outcome is Outcome.DIFFERS] == []
    policy = [row for row in rows if row.compared == "loss/policy"]
    assert [row.outcome for row in policy] == [Outcome.SAME] * 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retrospective", f"{outside_rules.__name__}:TrainedPrefix"])
def test_a_prefix_is_in_the_loss_where_it_was_trained_on(tmp_path, monkeypatch, name):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    run = Kept(tmp_path, f"algorithm.question_selection={name}", "algorithm.retired=never", *BOTH)
    items = [item for report in run.reports for group in report.groups for item in group.trajectories]
    assert any(item.num_prefix_tokens for item in items)
    assert {row.outcome for row in rows_of(tmp_path, "true", range(1, 6)) if row.stage == "loss"} == {Outcome.SAME}


def of_mini_batch(report, number, **change):
    report.mini_batches[number] = dataclasses.replace(report.mini_batches[number], **change)


def change_sums(report, number, **change):
    sums = report.mini_batches[number].sums
    of_mini_batch(report, number, sums={**sums, **{name: rule(sums[name]) for name, rule in change.items()}})


def change_seen(report, name, rule, number=1):
    """Change what the update saw of the longest trajectory of a mini-batch."""
    tokens = report.mini_batches[number].tokens
    key = max((key for key in tokens if tokens[key]), key=lambda key: tokens[key][name].size)
    values = {**tokens[key], name: rule(tokens[key][name].copy())}
    of_mini_batch(report, number, tokens={**tokens, key: values})


def swapped_losses(report):
    first, second = report.mini_batches
    report.mini_batches = [
        SeenMiniBatch(second.sums, first.tokens),
        SeenMiniBatch(first.sums, second.tokens),
    ]


def in_another_mini_batch(report):
    first, second = report.mini_batches
    key = next(key for key in first.tokens if first.tokens[key])
    rest = {name: values for name, values in first.tokens.items() if name != key}
    of_mini_batch(report, 0, tokens=rest)
    of_mini_batch(report, 1, tokens={**second.tokens, key: first.tokens[key]})


def old_log_probs(report):
    tokens = report.mini_batches[0].tokens
    trained_ids = {number for (number, is_replayed), values in tokens.items() if values and not is_replayed}
    item = next(item for group in report.groups for item in group.trajectories if item.trajectory_id in trained_ids)
    item.log_probs = item.log_probs - np.float32(0.3)


ONE_CLIPPED_MORE = partial(change_sums, number=1, clipped=lambda count: count + 1)
OF_FRESH = {"ratio/fresh_mean", "ratio/fresh_max", "ratio/clip_share", "clipped tokens"}
OF_REPLAYED = {"ratio/replayed_mean", "ratio/replayed_max", "ratio/replayed_ess", "ratio/shaped_mean"}
OF_LOSS = {"loss/policy", "loss/total", "loss/kl"}
MOVED = {"loss/policy", "loss/total", "loss/kl", "loss/entropy_bonus", "ratio/fresh_mean", "ratio/fresh_max"}


@pytest.mark.parametrize(
    ("fault", "expected", "others"),
    [
        # The mask is off by one, entropies are stale, the reference is another one.
        (partial(change_seen, name="update_log_probs", rule=lambda values: np.roll(values, 1)),
         {"loss/policy", "loss/total"}, OF_LOSS | OF_FRESH | OF_REPLAYED),
        (partial(change_seen, name="update_entropies", rule=lambda values: values * np.float32(1.5)),
         {"loss/entropy_bonus", "loss/total"}, set()),
        (partial(change_seen, name="reference_log_probs", rule=lambda values: values - np.float32(0.5)),
         {"loss/kl", "loss/total"}, set()),
        (ONE_CLIPPED_MORE, {"clipped tokens"}, {"ratio/clip_share"}),
        (partial(change_sums, number=0, num_fresh=lambda count: count - 1), {"fresh tokens"},
         {"ratio/fresh_mean", "ratio/clip_share"}),
        (partial(change_sums, number=0, num_replayed=lambda count: count + 1), {"replayed tokens"}, OF_REPLAYED),
        (partial(change_sums, number=1, policy=lambda value: value * 1.01), {"loss/policy"}, set()),
        (partial(change_sums, number=0, max_replayed=lambda value: value + 0.1), {"ratio/replayed_max"}, set()),
        (swapped_losses, {"loss/policy"}, MOVED | OF_FRESH | OF_REPLAYED | {"fresh tokens", "replayed tokens"}),
        (lambda report: report.mini_batches.reverse(), {"generator/log_prob_gap"}, set()),
        (in_another_mini_batch, {"fresh tokens"}, MOVED | OF_FRESH | {"generator/log_prob_gap"}),
        (old_log_probs, {"ratio/fresh_mean", "generator/log_prob_gap"}, OF_LOSS | OF_FRESH),
        *((lambda report, name=name, factor=factor: report.metrics.update({name: report.metrics[name] * factor}),
           {name}, set())
          for name, factor in (("loss/total", 1.001), ("ratio/shaped_mean", 0.999), ("optim/num_updated_tokens", 0.5))),
    ],
)  # fmt: skip
def test_a_fault_in_the_record_of_the_loss_is_found_there_and_nothing_else(kept, tmp_path, fault, expected, others):
    kept[1].again(tmp_path, AT, fault)
    rows = [row for row in rows_of(tmp_path, "changed", range(1, 6)) if row.outcome is Outcome.DIFFERS]
    assert {row.step for row in rows} == {AT}
    assert {row.stage for row in rows} == {"loss"}
    assert expected <= different(rows) <= expected | others


def masks_the_first_token(inputs, objective_settings, sizes):
    inputs.response_mask[0] = False
    return inputs, objective_settings, sizes


def shapes_more(inputs, objective_settings, sizes):
    inputs.advantages[inputs.is_replayed] *= 0.99
    return inputs, objective_settings, sizes


def clips_elsewhere(inputs, objective_settings, sizes):
    return inputs, dataclasses.replace(objective_settings, clip_epsilon=0.01), sizes


def weighs_kl_twice(inputs, objective_settings, sizes):
    return inputs, dataclasses.replace(objective_settings, kl_coefficient=0.02), sizes


def divides_by_others(inputs, objective_settings, sizes):
    return inputs, objective_settings, dataclasses.replace(sizes, num_trajectories=sizes.num_trajectories - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (masks_the_first_token, "loss/policy"),
        (shapes_more, "loss/policy"),
        (clips_elsewhere, "clipped tokens"),
        (weighs_kl_twice, "loss/kl"),
        (divides_by_others, "loss/policy"),
    ],
)
def test_a_trainer_with_another_loss_is_found_at_the_loss_alone(tmp_path, monkeypatch, fault, expected):
    from exgrpo.jobs.training.engines.embedded import update

    monkeypatch.setattr(update, "exgrpo_loss", lambda *given: objective.exgrpo_loss(*fault(*given)))
    trained(tmp_path, *BOTH, "algorithm.clipping=always")
    monkeypatch.undo()
    rows = [row for row in rows_of(tmp_path, "trained", range(1, 6)) if row.outcome is Outcome.DIFFERS]
    assert {row.stage for row in rows} == {"loss"}
    assert expected in different(rows)


@pytest.mark.slow
def test_a_trainer_that_divides_by_the_deviation_is_found_at_the_advantages_alone(tmp_path, monkeypatch):
    assign = algorithm.assign_advantages

    def wrong(groups, config):
        assign(groups, dataclasses.replace(config, normalize_by_std=True))

    monkeypatch.setattr(algorithm, "assign_advantages", wrong)
    trained(tmp_path)
    monkeypatch.undo()
    assert different(rows_of(tmp_path, "trained", range(1, 6))) == {"advantage"}


def test_first_difference_names_its_mini_batch(kept, tmp_path):
    kept[1].again(tmp_path, AT, ONE_CLIPPED_MORE)
    [row] = [row for row in rows_of(tmp_path, "changed") if row.compared == "clipped tokens"]
    assert row.first_difference.startswith("mini-batch 2: recorded ")
    assert row.recorded == row.computed + 1


def lengthen(report, factor=3000):
    """Repeat the tokens of each trajectory: counts grow by the factor, and all means stay."""
    for item in (item for group in report.groups for item in group.trajectories):
        for name in ("token_ids", "log_probs", "entropies"):
            values = getattr(item, name)
            setattr(item, name, None if values is None else np.tile(values, factor))
    for number, one in enumerate(report.mini_batches):
        names = ("num_fresh", "fresh", "clipped")
        change_sums(report, number, **{name: lambda value: value * factor for name in names})
        tokens = {
            key: {name: np.tile(array, factor) for name, array in of_one.items()} for key, of_one in one.tokens.items()
        }
        of_mini_batch(report, number, tokens=tokens)
    report.metrics = report.metrics | {"optim/num_updated_tokens": report.metrics["optim/num_updated_tokens"] * factor}


@pytest.mark.slow
def test_means_of_long_trajectories_are_the_same_and_their_counts_are_exact(tmp_path):
    run = Kept(tmp_path, "algorithm.loss_aggregation=token_mean", "algorithm.experience_ratio=0", "num_steps=2")
    run.again(tmp_path, 2, lengthen)
    rows = {row.compared: row for row in rows_of(tmp_path, "changed", [2]) if row.stage == "loss"}
    assert different(rows.values()) == set()

    def one_more(report):
        lengthen(report)
        change_sums(report, 0, num_fresh=lambda count: count + 1)
        report.metrics["optim/num_updated_tokens"] += 1
        assert report.mini_batches[0].sums["num_fresh"] > 100_001

    run.again(tmp_path, 2, one_more, "more")
    assert different(rows_of(tmp_path, "more", [2])) == {"fresh tokens", "optim/num_updated_tokens"}

    def other_loss(report):
        lengthen(report)
        change_sums(report, 1, policy=lambda value: value + 0.05)

    run.again(tmp_path, 2, other_loss, "other")
    assert "loss/policy" in different(rows_of(tmp_path, "other", [2]))


def by_hand(report, high):
    """Return the fresh tokens of a step whose ratio is above 1 + `high` at a positive advantage, or below .8 else."""
    advantages = {
        item.trajectory_id: (item.log_probs, advantage)
        for group in report.groups
        for item, advantage in zip(group.trajectories, group.advantages, strict=False)
    }
    count = 0
    for mini_batch in report.mini_batches:
        for (number, is_replayed), values in mini_batch.tokens.items():
            if not is_replayed and values:
                old, advantage = advantages[number]
                ratios = np.exp(values["update_log_probs"].astype(np.float64) - old)
                count += int(((ratios > 1 + high) if advantage > 0 else (ratios < 0.8) & (advantage < 0)).sum())
    return count


@pytest.mark.slow
def test_another_clip_range_shows_its_clipped_tokens_next_to_the_recorded_ones(tmp_path):
    run = Kept(tmp_path, "algorithm.clipping=always", "optim.learning_rate=0.003")
    rows = rows_of(tmp_path, "true", settings=["algorithm.clip_epsilon_high=0.02"])
    [row] = [row for row in rows if row.compared == "clipped tokens"]
    report = run.reports[AT - 1]
    assert sum(one.sums["clipped"] for one in report.mini_batches) == by_hand(report, 0.2)
    assert by_hand(report, 0.02) > by_hand(report, 0.2)
    share = next(row for row in rows if row.compared == "ratio/clip_share")
    num_fresh = sum(one.sums["num_fresh"] for one in report.mini_batches)
    assert row.outcome is Outcome.DIFFERS
    assert report.metrics["ratio/clip_share"] == pytest.approx(by_hand(report, 0.2) / num_fresh)
    assert share.outcome is Outcome.DIFFERS


def test_a_setting_of_the_loss_that_this_step_does_not_use_says_so(kept):
    rows = rows_of(kept[0], "true", settings=["algorithm.clip_epsilon_high=0.28"])
    [row] = [row for row in rows if row.outcome is Outcome.NO_EFFECT]
    assert (row.compared, row.note) == ("algorithm.clip_epsilon_high", "The loss of this step is the same with it.")
    assert different(rows) == set()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("algorithm.mini_batch_size=8", "other trajectories"),
        ("algorithm.experience_ratio=0.25", "other trajectories"),
        ('data.rewards={"format": 1.0}', "other rewards"),
    ],
)
def test_what_the_record_cannot_say_is_not_compared(kept, setting, sentence):
    rows = rows_of(kept[0], "true", settings=[setting])
    [row] = [row for row in rows if row.stage == "loss"]
    assert row.outcome is Outcome.UNKNOWN
    assert sentence in row.note


def test_kl_of_a_run_without_a_reference_is_not_compared(tmp_path):
    trained(tmp_path)
    rows = rows_of(tmp_path, "trained", settings=["algorithm.kl_coefficient=0.1"])
    [row] = [row for row in rows if row.stage == "loss"]
    assert (row.outcome, "reference_log_probs" in row.note) == (Outcome.UNKNOWN, True)


def test_advantages_of_another_setting_go_into_the_loss(kept):
    rows = rows_of(kept[0], "true", settings=["algorithm.normalize_by_std=true"])
    assert {"advantage", "loss/policy", "loss/total"} <= different(rows)
    assert "loss/kl" not in different(rows)


def test_runs_that_keep_fewer_tokens_say_what_records_them(tmp_path):
    run = Kept(tmp_path, "recording.token_data=successes", "num_steps=2")
    assert [report.mini_batches for report in run.reports] == [[], []]
    [row] = [row for row in rows_of(tmp_path, "true", [2]) if row.stage == "loss"]
    assert (row.outcome, "`recording.token_data: all`" in row.note) == (Outcome.UNKNOWN, True)
