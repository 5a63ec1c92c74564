"""A run adopted from verl's rollout dumps: pages say unknown where nothing is known, and offer what works."""

import json

import pytest

from jobs.actions.adoption import adopt
from jobs.actions.run_actions import clone
from jobs.runs.lookup import CommandError
from jobs.supervisor.open_index import open_fresh_index
from tests.app.page_texts import has_text


@pytest.fixture(scope="module")
def adopted(tmp_path_factory):
    """The runs root and the run's id."""
    root, folder = tmp_path_factory.mktemp("adopted"), tmp_path_factory.mktemp("dump")
    for step in (1, 2):
        rows = [
            {"input": "1 + 1?", "output": f"so {score:.0f}", "gts": "2", "score": score, "step": step}
            for score in (0.0, 1.0)
        ]
        (folder / f"{step}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run_id = adopt(folder, root, "stock verl").run_id
    with open_fresh_index(root, None):
        return root, run_id


@pytest.fixture
def adopted_shared(adopted, share):
    """The run's id."""
    share(adopted[0])
    return adopted[1]


def test_run_page_invents_no_method_time_or_buffer_and_offers_neither_score_nor_branch_nor_clone(
    open_page, adopted, adopted_shared
):
    page = open_page("run", run=adopted_shared)
    figures = {element.label: element.value for element in page.metric}
    assert figures.pop("Batch Pass@1") == "50.0%"
    assert set(figures.values()) == {"unknown"}
    assert not has_text(page, "GRPO")
    assert not has_text(page, " 0 s")
    assert not {"Score", "Branch", "Start branch", "Clone"} & {button.label for button in page.button}
    with pytest.raises(CommandError):
        clone(adopted[0], adopted_shared)


@pytest.mark.parametrize("page", ["replay_buffer", "selection_audit"])
def test_pages_of_replay_do_not_call_it_on_policy(open_page, adopted_shared, page):
    opened = open_page(page, run=adopted_shared)
    assert "Unknown" in [element.value for element in opened.subheader]
    assert not has_text(opened, "on-policy")


def test_lists_and_settings_leave_open_what_verl_did_not_dump(open_page, adopted_shared):
    page = open_page("run", run=adopted_shared, view="Configuration")
    (table,) = (element.value for element in page.dataframe)
    assert dict(zip(table["Field"], table["Value"], strict=True))["All other settings"] == "unknown"
    assert not page.code
    runs = open_page("runs").dataframe[0].value
    assert (runs["Method"][0], runs["Started"][0]) == ("unknown", "\N{EN DASH}")
    assert len(open_page("runs", q="unknown").dataframe[0].value) == 1
    page = open_page("trajectories", run=adopted_shared, trajectory="1")
    assert page.dataframe[0].value["Tokens"].isna().all()
    assert {element.label: element.value for element in page.metric}["Length"] == "unknown"
