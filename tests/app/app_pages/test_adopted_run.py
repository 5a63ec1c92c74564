"""A run adopted from verl's rollout dumps: pages say unknown where nothing is known, and offer what works."""

import json

import pytest

from jobs.actions.adoption import adopt
from jobs.actions.run_actions import clone
from jobs.runs.lookup import CommandError
from jobs.supervisor.open_index import open_fresh_index


@pytest.fixture
def adopted_id(runs_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    for step in (1, 2):
        rows = [
            {"input": "1 + 1?", "output": f"so {score:.0f}", "gts": "2", "score": score, "step": step}
            for score in (0.0, 1.0)
        ]
        (folder / f"{step}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run_id = adopt(folder, runs_root, "stock verl").run_id
    with open_fresh_index(runs_root, None):
        return run_id


def texts(page):
    return [element.value for element in [*page.text, *page.markdown, *page.caption]]


def test_run_page_invents_no_method_time_or_buffer(open_page, adopted_id):
    page = open_page("run", run=adopted_id)
    assert not page.exception
    figures = {element.label: element.value for element in page.metric}
    assert figures.pop("Batch Pass@1") == "50.0%"
    assert set(figures.values()) == {"unknown"}
    assert not [text for text in texts(page) if "GRPO" in text or " 0 s" in text]


def test_run_page_offers_neither_score_nor_branch_nor_clone(open_page, runs_root, adopted_id):
    labels = {button.label for button in open_page("run", run=adopted_id).button}
    assert not {"Score", "Branch", "Start branch", "Clone"} & labels
    with pytest.raises(CommandError, match="settings are unknown"):
        clone(runs_root, adopted_id)


@pytest.mark.parametrize("page", ["replay_buffer", "selection_audit"])
def test_pages_of_replay_do_not_call_it_on_policy(open_page, adopted_id, page):
    opened = open_page(page, run=adopted_id)
    assert not opened.exception
    assert "Unknown" in [element.value for element in opened.subheader]
    assert not [text for text in texts(opened) if "on-policy" in text]


def test_configuration_shows_no_setting_that_verl_did_not_dump(open_page, adopted_id):
    page = open_page("run", run=adopted_id, view="Configuration")
    (table,) = (element.value for element in page.dataframe)
    assert dict(zip(table["Field"], table["Value"], strict=True))["All other settings"] == "unknown"
    assert not page.code


def test_lists_leave_method_start_and_length_open(open_page, adopted_id):
    runs = open_page("runs").dataframe[0].value
    assert (runs["Method"][0], runs["Started"][0]) == ("unknown", "\N{EN DASH}")
    assert len(open_page("runs", q="unknown").dataframe[0].value) == 1
    page = open_page("trajectories", run=adopted_id, trajectory="1")
    assert page.dataframe[0].value["Tokens"].isna().all()
    assert {element.label: element.value for element in page.metric}["Length"] == "unknown"
