"""A run of imported rollouts: pages say unknown where nothing is known, and offer what works."""

import json

import pytest

from exgrpo.jobs.actions.rollout_import import import_rollouts
from exgrpo.jobs.actions.run_actions import clone
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.rollout_formats.formats import find_format
from tests.app.page_texts import has_text, tables

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The runs root and the run's id."""
    root, folder = tmp_path_factory.mktemp("imported"), tmp_path_factory.mktemp("dump")
    for step in (1, 2):
        rows = [
            {"input": "1 + 1?", "output": f"so {score:.0f}", "gts": "2", "score": score, "step": step}
            for score in (0.0, 1.0)
        ]
        (folder / f"{step}.jsonl").write_text("bad\n" + "\n".join(map(json.dumps, rows)))
    run_id, _ = (import_rollouts(folder, find_format(folder), root, name).run_id for name in ("stock verl", "other"))
    with open_fresh_index(root, None):
        return root, run_id


@pytest.fixture
def imported_shared(imported, share):
    share(imported[0])
    return imported[1]


def test_run_page_invents_no_method_time_or_buffer_and_offers_neither_score_nor_branch_nor_clone(
    open_page, imported, imported_shared
):
    page = open_page("run", run=imported_shared)
    assert {element.label: element.value for element in page.metric} == {"Batch Pass@1": "50.0%"}
    assert not has_text(page, "GRPO")
    assert not has_text(page, " 0 s")
    assert not {"Score", "Branch", "Start branch", "Clone"} & {button.label for button in page.button}
    with pytest.raises(CommandError):
        clone(imported[0], imported_shared)


def test_the_buffer_is_not_offered_and_a_step_says_what_was_not_recorded(open_page, imported_shared):
    opened = open_page("run", run=imported_shared, view="Buffer")
    assert has_text(opened, "The address asks for view=Buffer, which does not exist: showing Curves")
    assert not has_text(opened, "on-policy")
    comparisons = tables(open_page("run", run=imported_shared, view="Step"))[0].value
    assert comparisons["Result"].tolist() == ["not compared"] * 2


def test_lists_and_settings_leave_open_what_verl_did_not_dump(open_page, imported_shared):
    page = open_page("run", run=imported_shared, view="Configuration")
    assert "format: verl's rollout or validation dumps" in page.code[-1].value
    assert has_text(page, "1.jsonl, line 1")
    runs = tables(open_page("runs", columns="Run,Method,Started"))[0].value
    assert (runs["Method"][0], runs["Started"][0]) == ("unknown", "\N{EN DASH}")
    assert len(tables(open_page("runs", q="unknown"))[0].value) == 2
    page = open_page("run", view="Trajectories", run=imported_shared, trajectory="1")
    assert not {"Tokens", "Entropy", "Replays"} & set(tables(page)[0].value)
    assert not page.metric
    assert has_text(page, "reward 0") or has_text(page, "reward 1")


def test_the_filters_of_a_list_are_those_that_the_run_has_values_of(open_page, imported_shared):
    page = open_page("run", view="Trajectories", run=imported_shared, facets="true")
    assert [choice.label for choice in page.selectbox if choice.key != "run-choice"] == ["Outcome", "Code"]
    bounds = [field.label for field in page.number_input]
    assert bounds == ["Question", "Step, from", "to", "Reward, from", "to"]
    page = open_page("run", view="Trajectories", run=imported_shared, replayed="replayed")
    assert page.selectbox(key="replayed").value == "replayed"
    assert has_text(page, "No trajectory matches")


def test_the_questions_of_a_run_without_replays_say_nothing_of_them(open_page, imported_shared):
    page = open_page("run", view="Trajectories", run=imported_shared, list="Questions")
    [table] = tables(page)
    assert "Replays" not in table.value
    assert not has_text(page, "most replayed")
