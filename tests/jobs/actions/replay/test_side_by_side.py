import dataclasses

import numpy as np
import pytest

from exgrpo.db.queries import buffer
from exgrpo.jobs.actions.replay.facts import Outcome
from exgrpo.jobs.actions.replay.loss import replay_step
from exgrpo.jobs.actions.replay.side_by_side import Effect, changed_fields, changed_spec
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, load_preset
from exgrpo_core.methods.loading import methods
from tests.jobs.actions.replay import solved_runs

AT = solved_runs.NUM_STEPS


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    solved_runs.record(root)
    return root


def with_settings(root, *settings, method=None):
    with open_fresh_index(root, None) as database:
        rows = replay_step(database, root, "solved", AT, [f"algorithm.{text}" for text in settings], method)
    return {row.compared: row for row in rows}


def test_settings_of_the_run_itself_change_nothing(root):
    rows = with_settings(root, "experience_ratio=0.5")
    assert [row.outcome for row in rows.values()] == [Outcome.NO_EFFECT]


def test_questions_that_would_not_have_been_drawn_are_counted(root):
    drawn = with_settings(root, "experience_ratio=0.25")["drawn questions"]
    assert (drawn.num_compared, drawn.num_different) == (4, 2)
    assert (drawn.recorded, drawn.computed) == ("drawn", "not drawn")
    more = with_settings(root, "experience_ratio=0.75")["drawn questions"]
    assert (more.recorded, more.computed, more.num_different) == ("not drawn", "drawn", 2)


def test_what_would_be_replayed_of_a_question_that_takes_a_place_is_chosen_too(root):
    row = with_settings(root, "experience_ratio=0.75")["chosen trajectory"]
    assert (row.num_compared, row.num_different, row.recorded) == (6, 2, None)
    with open_fresh_index(root, None) as database:
        stored = buffer.stored_candidates(database, "solved", AT, [row.question_index])
    entropies = {known.trajectory_id: known.entropy for known in stored}
    assert entropies[row.computed] == min(entropies.values())


def test_choices_that_do_not_follow_from_the_record_say_so(root):
    row = with_settings(root, "trajectory_selection=random")["chosen trajectory"]
    assert (row.outcome, "Choices by random" in row.note) == (Outcome.UNKNOWN, True)


def test_another_rule_chooses_other_trajectories_of_the_same_questions(root):
    rows = with_settings(root, "trajectory_selection=highest_entropy")
    assert rows["drawn questions"].outcome is Outcome.SAME
    assert rows["chosen trajectory"].outcome is Outcome.DIFFERS
    assert rows["chosen trajectory"].num_compared == 4
    assert np.isnan(rows["chosen trajectory"].largest_difference)


def test_advantages_are_those_of_the_other_setting(root):
    row = with_settings(root, "normalize_by_std=true")["advantage"]
    assert row.computed == pytest.approx(np.sign(row.recorded) * abs(row.computed))
    assert abs(row.computed) > abs(row.recorded)


def test_setting_that_cannot_matter_says_so(root):
    [row] = with_settings(root, "recent_steps=3").values()
    assert row.outcome is Outcome.NO_EFFECT
    assert "cannot matter" in row.note


def test_setting_with_which_the_step_would_have_other_rollouts_is_not_compared(root):
    for name, value in (("temperature", "0.5"), ("replays_per_group", "2"), ("rollouts_per_question", "3")):
        row = with_settings(root, f"{name}={value}")[f"algorithm.{name}"]
        assert row.outcome is Outcome.UNKNOWN
        assert "not recorded" in row.note


@pytest.mark.parametrize(
    "setting",
    ["buffer_age=1", "buffer_capacity=5", "refresh=on_replay", "retired=redraw", "zero_correct=keep_bucket", "seed=7",
     "review_interval=2"],
)  # fmt: skip
def test_settings_of_buffer_and_draws_are_never_without_effect(root, setting):
    row = with_settings(root, setting)[f"algorithm.{setting.partition('=')[0]}"]
    assert (row.outcome, "not recorded" in row.note) == (Outcome.UNKNOWN, True)


@pytest.mark.parametrize(
    ("of_run", "name", "value", "effect"),
    [
        (("off_policy_correction=truncated",), "ratio_limit", 3, Effect.LOSS),
        (("fresh_objective=masked",), "ratio_limit", 3, Effect.LOSS),
        (("trajectory_selection=boundary_failure",), "most_confidence", 0.7, Effect.CHOICES),
        (("question_selection=repair_window", "retired=never"), "review_delay", 2, Effect.RECORD),
        (("question_selection=prioritized_rank",), "priority_alpha", 0.1, Effect.RECORD),
    ],
)
def test_a_setting_of_a_part_acts_where_the_part_acts(root, of_run, name, value, effect):
    texts = [f"algorithm.{text}" for text in of_run]
    spec = apply_settings(RunDirectory.open(root, "solved").spec(), texts)
    changed = changed_fields(spec, apply_settings(spec, [f"algorithm.strategy_settings={{{name}: {value}}}"]))
    assert {one: names for one, names in changed.items() if names} == {effect: {f"strategy_settings.{name}"}}


def test_the_age_of_recent_questions_acts_only_with_their_rule(root):
    spec = RunDirectory.open(root, "solved").spec()
    recent = apply_settings(spec, ["algorithm.question_selection=recent"])
    for before, effect in ((spec, Effect.NOTHING), (recent, Effect.RECORD)):
        assert changed_fields(before, apply_settings(before, ["algorithm.recent_steps=3"]))[effect] == {"recent_steps"}


def test_method_keeps_the_sizes_of_the_run(root):
    rows = with_settings(root, method="chains-exgrpo")
    assert not {"algorithm.batch_size", "algorithm.rollouts_per_question"} & set(rows)


@pytest.mark.parametrize("name", [*methods(), *(about.cell for about in methods().values())])
def test_a_replay_method_is_compared_by_either_of_its_names(root, name):
    spec = RunDirectory.open(root, "solved").spec()
    about = next(about for own, about in methods().items() if name in (own, about.cell))
    algorithm = changed_spec(spec, [], name).algorithm
    for field, value in about.settings.items():
        part, _, own = field.partition(".")
        assert (algorithm.strategy_settings[own] if own else getattr(algorithm, part)) == value
    assert algorithm.rollouts_per_question == spec.algorithm.rollouts_per_question


@pytest.mark.parametrize("preset", ["paper-exgrpo", "smollm2-word-problems", "chains-exgrpo"])
def test_the_method_of_a_run_changes_none_of_its_settings_and_another_one_only_its_own(preset):
    spec = load_preset(preset)
    assert changed_spec(spec, [], "exgrpo").algorithm == spec.algorithm
    assert changed_fields(spec, changed_spec(spec, [], "m2po"))[Effect.LOSS] == {"off_policy_correction"}
    back = changed_spec(changed_spec(spec, [], "nexgrpo"), [], "exgrpo")
    assert dataclasses.replace(back.algorithm, start_pass_rate=spec.algorithm.start_pass_rate) == spec.algorithm


def test_a_method_without_a_delayed_start_replays_as_the_run_where_replay_is_open():
    spec = load_preset("chains-exgrpo")
    other = changed_spec(spec, [], "dyjr")
    assert "start_pass_rate" in changed_fields(spec, other)[Effect.RECORD]
    assert "start_pass_rate" not in changed_fields(spec, other, is_replay_open=True)[Effect.RECORD]


def test_draws_without_buckets_are_not_compared_and_all_else_is(root):
    rows = with_settings(root, "question_selection=uniform", "normalize_by_std=true")
    assert (rows["drawn questions"].outcome, "uniform" in rows["drawn questions"].note) == (Outcome.UNKNOWN, True)
    assert rows["advantage"].outcome is Outcome.DIFFERS


def test_wrong_settings_are_one_sentence(root):
    with pytest.raises(SpecError, match="neither a replay method nor a preset 'dijr'; the methods are gaussian, a2r"):
        with_settings(root, method="dijr")
    with pytest.raises(SpecError, match="no such field"):
        with_settings(root, "no_field=1")
