from dataclasses import replace

import numpy as np
import pytest

from exgrpo.app.components.trajectories import question_view, token_heatmap
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from tests.app.page_texts import has_text, tables
from tests.db.recorded_runs import new_run, record_attempt
from tests.step_reports import make_report

pytestmark = pytest.mark.slow


def newest(step=30):
    return [item for group in make_report(step).groups for item in group.trajectories][-1]


def shown_ids(page):
    return list(tables(page)[0].value["Id"])


@pytest.mark.usefixtures("recorded_shared")
def test_filters_can_be_cleared_and_all_are_shown_newest_first_page_by_page(open_page):
    page = open_page("run", view="Trajectories", run="run-finished", step_from="29", outcome="timeout")
    page.button(key="facets-clear").click().run()
    assert shown_ids(page)[0] == newest().trajectory_id
    assert shown_ids(page) == sorted(shown_ids(page), reverse=True)
    assert len(shown_ids(page)) == 50
    tables(page)[0].send(page, "more", 50)
    assert len(set(shown_ids(page))) == 100


@pytest.mark.usefixtures("recorded_shared")
@pytest.mark.parametrize(
    ("address", "verdicts"),
    [
        ({"outcome": "correct"}, {"correct"}), ({"outcome": "wrong"}, {"wrong"}), ({"verdict": "wrong"}, {"wrong"}),
        ({"outcome": "not correct"}, {"wrong"}), ({"verdict": "correct"}, {"correct"}),
    ],
)  # fmt: skip
def test_the_outcome_chooses_correct_answers_all_others_or_those_of_one_verdict(open_page, address, verdicts):
    page = open_page("run", view="Trajectories", run="run-finished", facets="true", **address)
    assert {verdict for [verdict] in tables(page)[0].value["Verdict"]} == verdicts
    assert page.selectbox(key="outcome").value == next(iter(address.values()))
    assert "verdict" not in page.query_params
    assert [label for label in (choice.label for choice in page.selectbox) if label == "Verdict"] == []


@pytest.mark.usefixtures("played_shared")
def test_questions_are_listed_by_replays_or_if_never_solved_and_each_leads_to_its_trajectories(open_page):
    page = open_page("run", view="Trajectories", run="play-finished")
    page.button_group(key="choose-list").set_value("Questions").run()
    questions = tables(page)[0]
    assert questions.value["Replays"].is_monotonic_decreasing
    assert questions.value["Replays"][0] > 1
    assert (questions.value["Rollouts"] == 4 * questions.value["Steps"] - questions.value["Replays"]).all()
    questions.send(page, "sorted", {"name": "Correct", "isDescending": False})
    never = [row.Question for row in tables(page)[0].value.itertuples() if row.Correct == 0]
    assert never
    page.button_group(key="choose-list").set_value("Never solved").run()
    assert "sort" not in page.query_params
    assert sorted(tables(page)[0].value["Question"]) == sorted(never)
    tables(page)[0].open(page, 0)
    assert "list" not in page.query_params
    assert set(tables(page)[0].value["Question"]) == {never[0]}
    assert set(tables(page)[0].value["Reward"]) == {0}


@pytest.mark.usefixtures("recorded_shared")
def test_filters_of_one_run_do_not_hide_the_trajectories_of_another(open_page):
    page = open_page("run", view="Trajectories", run="run-finished", outcome="timeout", words="nowhere")
    assert has_text(page, "No trajectory matches")
    page.run()
    assert has_text(page, "No trajectory matches")
    page.query_params.clear()
    page.query_params.update({"view": "Trajectories", "run": "run-failed"})
    page.run()
    assert not has_text(page, "No trajectory matches")
    assert shown_ids(page)


@pytest.mark.usefixtures("played_shared")
def test_previous_and_next_follow_the_order_of_all_beyond_the_loaded_rows(open_page):
    page = open_page("run", view="Trajectories", run="play-finished", sort="-replays")
    loaded = shown_ids(page)
    tables(page)[0].send(page, "more", len(loaded))
    following = shown_ids(page)[len(loaded)]
    page = open_page("run", view="Trajectories", run="play-finished", sort="-replays", trajectory=str(loaded[-1]))
    page.button(key="next-trajectory").click().run()
    assert page.query_params["trajectory"] == str(following)
    page.button(key="previous-trajectory").click().run()
    assert page.query_params["trajectory"] == str(loaded[-1])


@pytest.mark.usefixtures("recorded_shared")
def test_open_trajectory_shows_prompt_answer_and_text_raw_and_closes(open_page):
    item = newest()
    page = open_page("run", view="Trajectories", run="run-finished", trajectory=str(item.trajectory_id))
    question = item.question_index
    assert [code.value for code in page.code] == [f"Q{question}: 1+{question}=?", str(question + 1), item.text]
    page.button(key="close-trajectory").click().run()
    assert "trajectory" not in page.query_params
    assert len(page.code) == 0
    assert not open_page("run", view="Trajectories", run="run-finished", trajectory="drop table").code


@pytest.mark.usefixtures("played_shared")
def test_mathematics_is_rendered_only_on_request(open_page):
    address = {"run": "play-finished", "trajectory": "0"}
    assert not open_page("run", view="Trajectories", **address).latex
    page = open_page("run", view="Trajectories", mathematics="true", **address)
    assert [formula.value for formula in page.latex] == ["$$\n\\boxed{7}\n$$"]


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
    assert has_text(
        open_page("run", view="Trajectories", part="Lineage", **address), "generated by the policy after 3 steps"
    )
    tokens = open_page("run", view="Trajectories", part="Tokens", **address)
    assert "Ratio" in tokens.segmented_control(key="colour").options


def test_a_trajectory_that_began_with_a_part_of_an_old_one_names_it(runs_root, open_page):
    def begin_with_old_tokens(report):
        for item in (item for group in report.groups for item in group.trajectories):
            item.num_prefix_tokens, item.prefix_of = 2, 3

    run = new_run(runs_root)
    record_attempt(run, [5], change=begin_with_old_tokens)
    ingest_all(runs_root, None)
    address = {"run": run.run_id, "trajectory": str(make_report(5).groups[0].trajectories[0].trajectory_id)}
    page = open_page("run", view="Trajectories", part="Lineage", **address)
    assert has_text(page, "Generated in step 5 from the first 2 tokens of trajectory 3")


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


@pytest.mark.usefixtures("played_shared")
def test_another_run_has_the_same_tab_and_nothing_of_the_trajectories_of_the_first(open_page):
    first, second, *_ = shown_ids(open_page("run", view="Trajectories", run="play-finished"))
    address = {"trajectory": str(first), "beside": str(second), "part": "Difference", "outcome": "correct"}
    page = open_page("run", view="Trajectories", run="play-finished", **address)
    page.selectbox(key="run-choice").set_value("play-failed").run()
    kept = {"run": "play-failed", "view": "Trajectories", "part": "Difference", "outcome": "correct"}
    assert {name: page.query_params[name] for name in page.query_params} == kept
