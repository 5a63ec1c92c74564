import dataclasses

import numpy as np
import pytest
import streamlit as st

from app.queries import runs as selection_queries
from app.queries.runs import wrong_choices
from db.queries import selections
from exgrpo_core.config import RetiredRule, RewardKind
from tests.app import played
from tests.app.page_texts import has_text, tables

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("played_shared")
def test_what_the_algorithm_selected_passes_every_check(open_page):
    page = open_page("run", view="Step", run="play-running")
    assert has_text(page, "pass**")
    assert not has_text(page, "could not be made")
    for result in tables(page)[0].value["Checks"]:
        num_made, _, num_all = result.removesuffix(" pass").partition(" of ")
        assert num_made == num_all
        assert int(num_all) >= 17


def choose_the_worst(report):
    for index, selection in enumerate(report.selections):
        if selection.scores.size > 1 and selection.scores.min() < selection.scores.max():
            worst = int(np.argmax(selection.scores))
            report.selections[index] = dataclasses.replace(selection, chosen=(worst,))


def blur_the_entropies(report):
    for group in report.groups:
        if group.has_replay:
            group.replays = (dataclasses.replace(group.replays[0], entropies=group.replays[0].entropies + 0.5),)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [(choose_the_worst, "best score is chosen"), (blur_the_entropies, "entropy that chose")],
)
def test_planted_error_raises_a_red_banner(open_page, runs_root, change, sentence):
    played.play(runs_root, played.FINISHED, change)
    page = open_page("run", view="Step", run="play-finished")
    assert has_text(page, "selections of this step are wrong")
    assert has_text(page, sentence)
    assert has_text(page, "contradict their scores") is (change is choose_the_worst)


def test_a_step_without_an_error_has_its_verdict_next_to_one_that_is_wrong(open_page, runs_root):
    def last_step(report):
        if report.step == played.FINISHED.num_done:
            choose_the_worst(report)

    played.play(runs_root, played.FINISHED, last_step)
    page = open_page("run", view="Step", run="play-finished", step=str(played.FINISHED.num_done - 1))
    assert has_text(page, "contradict their scores")
    assert has_text(page, f"checks of step {played.FINISHED.num_done - 1} pass**")
    assert not has_text(page, "no choice of the run")


def test_a_run_that_was_checked_is_only_checked_for_its_newest_steps(played_runs, monkeypatch):
    asked = []
    whole = selections.wrong_choices

    def watched(database, run_id, step_from=0):
        asked.append(step_from)
        return whole(database, run_id, step_from)

    monkeypatch.setattr(selection_queries, "RECHECKED_STEPS", 4)
    monkeypatch.setattr(selections, "wrong_choices", watched)
    bad = played.play(played_runs, dataclasses.replace(played.FINISHED, run_id="play-bad"), choose_the_worst)
    first = wrong_choices(bad.run_id)
    st.cache_data.clear()
    assert wrong_choices(bad.run_id) == first != []
    assert asked == [0, played.FINISHED.num_done - 4]
    assert wrong_choices("nowhere") == []


def test_draws_of_a_method_that_replays_whole_groups_are_shown(runs_root, open_page):
    run = dataclasses.replace(played.FINISHED, run_id="play-groups")
    played.play(runs_root, run, question_selection="trinity", retired=RetiredRule.NEVER, off_policy_correction="clip")
    page = open_page("run", view="Step", run="play-groups")
    assert not has_text(page, "Nothing was replayed yet")
    frame = tables(page)[0].value
    assert set(frame["Trajectories"]) == {4}
    assert (frame["Age"] >= 1).all()
    assert (frame["Correct"] >= 1).all()


def test_buckets_of_continuous_rewards_are_not_called_correct_rollouts(runs_root, open_page):
    run = dataclasses.replace(played.FINISHED, run_id="play-continuous")
    played.play(runs_root, run, reward_kind=RewardKind.CONTINUOUS)
    effects = open_page("run", view="Step", run="play-continuous", part="Drawn against undrawn")
    assert {"% correct, drawn", "% correct, undrawn"} <= set(tables(effects)[0].value)
    assert not has_text(effects, "k/K")
    assert not has_text(effects, "retired have no next attempt")
    buckets = open_page("run", view="Buffer", run="play-continuous", part="Over time")
    assert has_text(buckets, "by spread of rewards, 0 to K")
    assert not has_text(buckets, "correct rollouts")
    assert has_text(open_page("run", view="Buffer", run="play-continuous", part="Retired"), "No question retires")
