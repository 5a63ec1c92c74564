import dataclasses

import numpy as np
import pytest
import streamlit as st

from exgrpo.app.queries import runs as selection_queries
from exgrpo.app.queries.runs import wrong_choices
from exgrpo.db.queries import selections
from exgrpo.jobs.actions import page_commands
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, Stage, summed_up
from exgrpo.jobs.execution.supervisor.indexing import rebuild_index
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo_core.config import RetiredRule, RewardKind
from exgrpo_core.recording import start
from tests.app import played
from tests.app.page_texts import has_text, tables
from tests.db.recorded_chains import Response, Step, record_steps

pytestmark = pytest.mark.slow


def tiles(page):
    return {tile.label: tile.value for tile in page.metric if tile.label in {"Selection", "Reward", "Advantages"}}


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize("run_id", ["play-running", "play-finished", "play-failed", "play-on-policy"])
def test_a_true_step_has_no_difference_in_any_stage(open_page, run_id):
    page = open_page("run", view="Step", run=run_id)
    rewards = "not compared" if run_id == "play-on-policy" else "same"
    assert tiles(page) == {"Selection": "same", "Reward": rewards, "Advantages": "same"}
    comparisons, groups = (table.value for table in tables(page)[:2])
    assert set(comparisons["Result"]) <= {"same", "not compared"}
    assert all(text.endswith(" same") for text in groups["Comparisons"])
    assert ("Bucket" in groups) is (run_id != "play-on-policy")
    assert not has_text(page, "contradict")


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
    ("change", "sentence"), [(choose_the_worst, "best score is chosen"), (blur_the_entropies, "entropy that chose")]
)
def test_planted_error_is_named_at_its_stage_and_in_its_group(open_page, runs_root, change, sentence):
    played.play(runs_root, played.FINISHED, change)
    page = open_page("run", view="Step", run="play-finished")
    assert has_text(page, "This step contradicts its settings")
    assert has_text(page, f"selection, {sentence}: question")
    assert tiles(page)["Selection"] == "differs"
    assert has_text(page, "contradict their scores") is (change is choose_the_worst)
    groups = tables(page)[1].value
    wrong = groups["Question"][groups["Comparisons"].str.endswith(" differ")]
    opened = open_page("run", view="Step", run="play-finished", question=str(wrong.iloc[0]))
    checks = tables(opened)[-1].value
    assert sentence in set(checks["Compared"][checks["Result"] == "differs"])


def test_a_step_without_an_error_has_its_verdict_next_to_one_that_is_wrong(open_page, runs_root):
    def last_step(report):
        if report.step == played.FINISHED.num_done:
            choose_the_worst(report)

    played.play(runs_root, played.FINISHED, last_step)
    page = open_page("run", view="Step", run="play-finished", step=str(played.FINISHED.num_done - 1))
    assert has_text(page, "contradict their scores")
    assert tiles(page)["Selection"] == "same"
    assert not has_text(page, "This step contradicts")


@pytest.mark.usefixtures("played_shared")
def test_another_setting_shows_the_same_step_next_to_it(open_page):
    page = open_page("run", view="Step", run="play-finished")
    page.text_input(key="setting").set_value("trajectory_selection=highest_entropy normalize_by_std=true").run()
    assert page.query_params["setting"] == "trajectory_selection=highest_entropy normalize_by_std=true"
    values = [tile.value for tile in page.metric if tile.label == "Selection"]
    assert values == ["same", "differs"]
    groups = tables(page)[2].value
    changed = groups[groups["With the setting"].str.contains("replays ")]
    assert not changed.empty
    assert not has_text(page, "This step contradicts")
    opened = open_page("run", **page.query_params, question=str(changed["Question"].iloc[0]))
    trajectories, checks = tables(opened)[-2].value, tables(opened)[-1].value
    chosen = checks[(checks["Executed"] == "with the setting") & (checks["Compared"] == "chosen trajectory")]
    assert chosen["Result"].tolist() == ["differs"]
    assert trajectories["With the setting"].notna().all()
    for choice, name in (("chains-grpo", "chains-grpo"), ("", None)):
        opened.selectbox(key="choose-method").set_value(choice).run()
        assert opened.query_params.get("method") == name
    opened.selectbox(key="run-choice").set_value("play-failed").run()
    assert dict(opened.query_params) == {"run": "play-failed", "view": "Step"}


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"setting": "no_field=1"}, "The setting no"), ({"setting": "clip_epsilon_high=.28"}, "acts on the loss"),
        ({"setting": "question_selection=uniform"}, "not those of uniform"),
        ({"method": "chains-grpo"}, "With the method preset chains-grpo"), ({"method": "m2po"}, "With the method M2PO"),
        ({"question": "999"}, "Not in this step"),
    ],
)  # fmt: skip
def test_what_the_address_asks_for_is_shown_or_refused_in_a_sentence(open_page, query, words):
    page = open_page("run", view="Step", run="play-finished", **query)
    assert has_text(page, words) or any(
        words in row for table in tables(page) for row in table.value.iloc[:, -1].astype(str)
    )


def torch_tiles(page):
    return [(tile.value, tile.delta) for tile in page.metric if tile.label in {"Loss", "Update"}]


@pytest.mark.usefixtures("played_shared")
def test_a_run_that_cannot_execute_loss_and_update_says_so_before(open_page):
    page = open_page("run", view="Step", run="play-finished")
    assert torch_tiles(page) == 2 * [("not executed", "cannot be executed")]
    assert has_text(page, "records what loss and update need; of this run it is")
    assert not any("Execute loss" in button.label for button in page.button)


def test_an_update_says_that_it_runs_and_then_fills_its_tiles(open_page, runs_root, monkeypatch):
    def ticks():
        yield None
        st.stop()  # the page stays as it is at this moment

    rows = (rows for rows in [summed_up(14, [Fact(stage, "x", Outcome.SAME) for stage in (Stage.LOSS, Stage.UPDATE)])])
    run = played.play(runs_root, played.FINISHED)
    run.spec_path.write_text(run.spec_path.read_text().replace('"successes"', '"all"'))
    page = open_page("run", view="Step", run="play-finished", step="3")
    assert [delta for _, delta in torch_tiles(page)] == ["by the button below", "cannot be executed"]
    assert has_text(page, "There is no checkpoint of step 2;")
    assert [button.label for button in page.button if "Execute l" in button.label] == ["Execute loss"]
    page = open_page("run", view="Step", run="play-finished", step="1")
    assert [delta for _, delta in torch_tiles(page)] == 2 * ["by the button below"]
    for stream, words in ((ticks(), "are executed again"), (rows, "")):
        monkeypatch.setattr(page_commands, "execute_steps", lambda *_, stream=stream: stream)
        next(button for button in page.button if button.label == "Execute loss and update").click().run()
        assert has_text(page, words)
    assert [value for value, _ in torch_tiles(page)] == 2 * ["same"]
    assert not any("Execute loss" in button.label for button in page.button)


def test_all_steps_are_summed_up_once_someone_asks_and_each_place_that_differs_leads_to_its_step(open_page, runs_root):
    blurred = {}

    def in_one_step(report):
        if report.step == 3:
            blurred[3] = sum(group.has_replay for group in report.groups)
            blur_the_entropies(report)

    played.play(runs_root, played.FINISHED, in_one_step)
    page = open_page("run", view="Step", run="play-finished")
    next(button for button in page.button if button.label == "Execute all steps").click().run(timeout=90)
    rows = tables(page)[-2].value
    [entropy] = rows[rows["Compared"] == "entropy that chose"].to_dict("records")
    assert (entropy["Result"], entropy["Step"]) == ("differs", 3)
    replayed = rows[rows["Compared"] == "advantage"]["Values"].item()
    assert replayed == played.FINISHED.num_done * 8 * 4
    assert not any("Execute all" in button.label for button in page.button)
    differing = tables(page)[-1]
    assert set(differing.value["Step"]) == {3}
    assert len(differing.value) == blurred[3] > 1
    assert set(differing.value["Differs"]) == {"selection: entropy that chose"}
    differing.open(page, 1)
    step, question = ("".join(page.query_params[name]) for name in ("step", "question"))
    assert (step, question) == ("3", str(differing.value["Question"][1]))
    groups = tables(page)[1].value.set_index("Question")
    assert groups["Comparisons"][int(question)].endswith(" differ")
    assert f"Question {question}" in {element.value for element in page.subheader}


def test_advantages_of_another_program_are_compared_with_formulas(open_page, runs_root):
    with start("loop", {}, runs_root, run_id="loop") as run:
        for step in (1, 4):
            answers = [
                {"prompt": "1+1?", "response": str(reward), "reward": reward, "advantage": reward - 0.25}
                for reward in (0.0, 0.0, 1.0, 0.0)
            ]
            run.log(step, {"loss": 0.5}, trajectories=answers)
        run.log(5, {"loss": 0.5}, trajectories=[{**answer, "advantage": 3.0} for answer in answers])
    rebuild_index(runs_root, None)
    page = open_page("run", view="Step", run="loop", step="3")
    assert has_text(page, "No responses of step 3 are recorded: showing step 4.")
    assert tiles(page) == {"Selection": "\N{EN DASH}", "Reward": "\N{EN DASH}", "Advantages": "same"}
    comparisons, groups = (table.value for table in tables(page)[:2])
    assert has_text(page, "Dr.GRPO")
    assert comparisons["Result"].tolist() == ["same", "not compared"]
    assert groups["Mean reward"].tolist() == [0.25]
    assert groups["Mean |advantage|"].tolist() == [0.375]
    page = open_page("run", view="Step", run="loop", step="5")
    assert tiles(page)["Advantages"] == "differs"
    assert has_text(page, "No formula gives any of the groups")
    assert not has_text(page, "contradicts")
    assert [delta for _, delta in torch_tiles(page)] == ["1 of 1 comparison not compared", "cannot be executed"]
    assert not any("Execute loss" in button.label for button in page.button)
    RunDirectory.open(runs_root, "loop").spec_path.write_text("{")
    page = open_page("run", view="Step", run="loop", step="1")
    assert has_text(page, "Not executed")
    assert tables(page)[0].value["Mean reward"].tolist() == [0.25]


def test_an_answer_from_a_file_is_not_called_a_replay_and_has_no_age_or_page(open_page, runs_root):
    steps = [Step({1: [Response(), Response()]}), Step({1: [Response()], 2: [Response()]}, replayed={1: (-3, 0)})]
    record_steps(runs_root, steps)
    rebuild_index(runs_root, None)
    page = open_page("run", view="Step", run="trained", question="1")
    groups, trajectories = (table for table in tables(page) if {"Mean reward", "Source"} & set(table.value))
    assert groups.value["Replayed"].dropna().tolist() == ["from a file"]
    assert trajectories.value["Source"].tolist() == ["fresh", "from a file"]
    assert trajectories.value["Trajectory"].dropna().tolist() == [2]
    assert not {"Age"} & ({*groups.value} | {*trajectories.value})
    trajectories.open(page, 1)
    assert (page.query_params["view"], "trajectory" in page.query_params) == ("Step", False)


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


def test_groups_of_a_method_that_replays_whole_groups_are_shown(runs_root, open_page):
    run = dataclasses.replace(played.FINISHED, run_id="play-groups")
    played.play(runs_root, run, question_selection="trinity", retired=RetiredRule.NEVER, off_policy_correction="clip")
    page = open_page("run", view="Step", run="play-groups")
    frame = tables(page)[1].value
    replayed = frame[frame["Replayed"].notna()]
    assert {len(numbers.split(", ")) for numbers in replayed["Replayed"]} == {4}
    assert (replayed["Age"] >= 1).all()
    assert tiles(page)["Advantages"] == "same"


def test_buckets_of_continuous_rewards_are_not_called_correct_rollouts(runs_root, open_page):
    run = dataclasses.replace(played.FINISHED, run_id="play-continuous")
    played.play(runs_root, run, reward_kind=RewardKind.CONTINUOUS)
    buckets = open_page("run", view="Buffer", run="play-continuous", part="Over time")
    assert has_text(buckets, "by spread of rewards, 0 to K")
    assert not has_text(buckets, "correct rollouts")
    assert has_text(open_page("run", view="Buffer", run="play-continuous", part="Retired"), "No question retires")
