from dataclasses import replace

import numpy as np
import pytest

from app.components.trajectories import question_view, token_heatmap, trajectory_search
from app.components.widgets import shown_text
from db.rows.trajectories import TrajectoryFacets
from jobs.supervisor.open_index import ingest_all
from tests.app import recorded
from tests.app.page_texts import has_text, tables
from tests.db.recorded_runs import new_run, record_attempt
from tests.step_reports import make_report

pytestmark = pytest.mark.slow


def newest(step=30):
    return [item for group in make_report(step).groups for item in group.trajectories][-1]


def shown_ids(page):
    return list(tables(page)[0].value["Id"])


@pytest.mark.usefixtures("recorded_shared")
def test_filters_come_from_the_address_are_named_and_count_what_each_value_would_leave(open_page):
    fresh = [item for group in make_report(7).groups for item in group.trajectories]
    expected = [item.trajectory_id for item in fresh if item.reward == 1.0]
    page = open_page("trajectories", run="run-finished", words="step7", outcome="correct")
    assert shown_ids(page) == sorted(expected, reverse=True)
    assert has_text(page, "correct")
    assert has_text(page, f"{len(expected)} of {len(expected)} trajectories, newest first")
    assert not has_text(page, "Outcome: correct")
    page = open_page("trajectories", run="run-finished", facets="true", words="step7")
    assert has_text(page, f"Outcome: correct {len(expected)}, not correct {len(fresh) - len(expected)}")


@pytest.mark.usefixtures("recorded_shared")
def test_filters_can_be_cleared_and_all_are_shown_newest_first_page_by_page(open_page):
    page = open_page("trajectories", run="run-finished", step_from="29", verdict="timeout")
    page.button(key="facets-clear").click().run()
    assert shown_ids(page)[0] == newest().trajectory_id
    assert shown_ids(page) == sorted(shown_ids(page), reverse=True)
    assert len(shown_ids(page)) == 50
    tables(page)[0].send(page, "more", 50)
    assert len(set(shown_ids(page))) == 100


@pytest.mark.usefixtures("played_shared")
def test_the_most_replayed_of_all_is_first_after_one_click_on_its_head_and_the_address_keeps_the_order(open_page):
    replayed = tables(open_page("trajectories", run="play-finished", replayed="replayed"))[0].value["Replays"]
    page = open_page("trajectories", run="play-finished")
    tables(page)[0].send(page, "sorted", {"name": "Replays", "isDescending": True})
    assert page.query_params["sort"] == "-replays"
    again = tables(open_page("trajectories", run="play-finished", sort="-replays"))[0]
    assert again.data["order"] == {"name": "Replays", "isDescending": True}
    most = again.value["Replays"].to_list()
    assert most == sorted(most, reverse=True)
    assert most[0] >= max(replayed)
    tables(page)[0].send(page, "sorted", {"name": "Text", "isDescending": True})
    assert page.query_params["sort"] == "-replays"
    tables(page)[0].send(page, "sorted", {"name": "Id", "isDescending": False})
    assert "sort" not in page.query_params
    assert not tables(page)[0].data["columns"][0]["sorts"]  # a click that brings nothing would leave the rows dimmed


@pytest.mark.usefixtures("played_shared")
def test_previous_and_next_follow_the_order_of_all_beyond_the_loaded_rows(open_page):
    page = open_page("trajectories", run="play-finished", sort="-replays")
    loaded = shown_ids(page)
    tables(page)[0].send(page, "more", len(loaded))
    following = shown_ids(page)[len(loaded)]
    page = open_page("trajectories", run="play-finished", sort="-replays", trajectory=str(loaded[-1]))
    page.button(key="next-trajectory").click().run()
    assert page.query_params["trajectory"] == str(following)
    page.button(key="previous-trajectory").click().run()
    assert page.query_params["trajectory"] == str(loaded[-1])


@pytest.mark.usefixtures("recorded_shared")
def test_open_trajectory_shows_prompt_answer_and_text_raw_and_closes(open_page):
    item = newest()
    page = open_page("trajectories", run="run-finished", trajectory=str(item.trajectory_id))
    question = item.question_index
    assert [code.value for code in page.code] == [f"Q{question}: 1+{question}=?", str(question + 1), item.text]
    page.button(key="close-trajectory").click().run()
    assert "trajectory" not in page.query_params
    assert len(page.code) == 0
    assert not open_page("trajectories", run="run-finished", trajectory="drop table").code


@pytest.mark.usefixtures("played_shared")
def test_mathematics_is_rendered_only_on_request(open_page):
    address = {"run": "play-finished", "trajectory": "0"}
    assert not open_page("trajectories", **address).latex
    page = open_page("trajectories", mathematics="true", **address)
    assert [formula.value for formula in page.latex] == ["$$\n\\boxed{7}\n$$"]


@pytest.mark.usefixtures("played_shared")
@pytest.mark.parametrize("part", ["Tokens", "Lineage", "Group", "Question"])
def test_every_part_of_a_replayed_trajectory_is_shown(open_page, part):
    number = shown_ids(open_page("trajectories", run="play-finished", replayed="replayed"))[0]
    page = open_page("trajectories", run="play-finished", trajectory=str(number), part=part)
    if part == "Lineage":
        assert "replayed" in list(tables(page)[1].value["Event"])
    if part == "Group":
        num_correct = sum(block.value.endswith("check: correct]") for block in page.markdown)
        assert num_correct
        assert has_text(page, f"{num_correct} of 4 correct")
    if part == "Tokens":
        assert page.selectbox(key="under").options[0] == "at rollout"
        page.selectbox(key="under").select(int(page.selectbox(key="under").options[1].split()[-1])).run()
        assert "Ratio" in page.segmented_control(key="colour").options


def test_a_trajectory_generated_ahead_names_the_policy_that_wrote_it(runs_root, open_page):
    def write_ahead(report):
        """Have the policy of the step before write all, half as sure of every token."""
        for item in (item for group in report.groups for item in group.trajectories):
            item.policy_version = report.step - 2
            item.sampler_log_probs = item.log_probs - np.float32(np.log(2))

    run = new_run(runs_root)
    record_attempt(run, [5], change=write_ahead)
    ingest_all(runs_root, None)
    written = [item for group in make_report(5).groups for item in group.trajectories if item.reward == 1.0]
    address = {"run": run.run_id, "trajectory": str(written[0].trajectory_id)}
    assert has_text(open_page("trajectories", part="Lineage", **address), "generated by the policy after 3 steps")
    tokens = open_page("trajectories", part="Tokens", **address)
    assert "Ratio" in tokens.segmented_control(key="colour").options


def test_marked_text_escapes_everything():
    markup = shown_text.html([shown_text.Part(recorded.HOSTILE, "red", '"><script>')])
    assert "<img" not in markup
    assert "<script" not in markup
    assert "&lt;img src=x onerror=alert(1)&gt;" in markup
    assert "\x1b" not in markup


def test_compared_texts_add_up_and_only_differences_are_marked():
    parts = question_view.compare("6;a*2=3;b*9=8", "6;a*2=2;b*9=8")
    assert "".join(part.text for part in parts) == "6;a*2=3;b*9=8"
    assert [part.text for part in parts if part.is_underlined] == ["3"]


def test_colour_grows_with_the_value_and_ratios_have_two_sides():
    values = token_heatmap.TokenValues(
        [1, 2, 3], ["a", "b\n", "c"], [0.0, 1.0, 2.0], [-1.0, -2.0, -3.0], [-2.0, -2.0, -1.0]
    )
    entropies = token_heatmap.parts(values, "Entropy", np.array(values.entropies), slice(0, 3))
    assert [bool(part.background) for part in entropies] == [False, True, True]
    assert entropies[1].text == "b↵\n"
    assert values.log_ratios == [1.0, 0.0, -2.0]
    assert token_heatmap.table(values)["Text"].tolist() == ["a", "b↵", "c"]
    assert token_heatmap.table(replace(values, texts=[]), slice(1, 3))["Text"].tolist() == ["⟨2⟩ ", "⟨3⟩ "]


def test_counts_are_exact_up_to_ten_thousand():
    every, some = TrajectoryFacets(), TrajectoryFacets(words="therefore")
    assert [trajectory_search.count(value, some) for value in (12, 10_000, 10_001)] == ["12", "10,000", "10,000+"]
    assert trajectory_search.count(18_184, every) == "18,184"
