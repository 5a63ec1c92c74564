"""Addresses of former pages lead to where their content is."""

from urllib.parse import parse_qs

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.app_pages.tabs import buffer, reasoning, step, studies
from app.components.trajectories import trajectory_detail
from app.page_list import FORMER_PATHS, PATHS, TABS, moved
from app.serving import shell

PARTS_OF = {
    "Buffer": buffer.VIEWS, "Trajectories": trajectory_detail.PARTS, "Reasoning": reasoning.VIEWS, "Step": step.VIEWS,
    "Studies": {*studies.VIEWS, *studies.VIEWS_WITHOUT_PAPER}, "Configuration": ["Settings", "Attempts", "Playground"],
}  # fmt: skip
FORMER_VIEWS = {
    "run": ["Replay buffer", "Attempts", "Playground"],
    "replay_buffer": ["Buckets", "Flow", "Ages and replays", "Over time", "Concentration", "Retired", "What if"],
    "trajectories": [],
    "selection_audit": ["Checks of a step", "Drawn against undrawn", "Weights and variance"],
    "snowball": ["Code and entropy", "Over steps", "Cases", "Saved cases"],
    "entropy_and_judge": ["Entropy and validity", "Failures", "Policy entropy", "Verdicts", "Judges"],
    "studies": ["Runs", "Next to the paper", "What the paper prints", "Results"],
    "paper": [],
}
FORMER = {
    "/run?view=Replay+buffer": "run?view=Buffer&part=Over+time",
    "/run?run=a&view=Attempts": "run?run=a&view=Configuration&part=Attempts",
    "/replay_buffer": "run?view=Buffer",
    "/replay_buffer?run=a&view=What+if&step=3": "run?run=a&step=3&view=Buffer&part=What+if",
    "/trajectories?run=a&trajectory=1&part=Lineage": "run?run=a&trajectory=1&part=Lineage&view=Trajectories",
    "/selection_audit?view=Weights+and+variance": "run?view=Step&part=Weights",
    "/snowball?run=a": "run?run=a&view=Reasoning&part=Code",
    "/snowball?run=a&view=Cases": "run?run=a&view=Reasoning&part=Cases",
    "/entropy_and_judge?view=Verdicts&trajectory=8": "run?trajectory=8&view=Reasoning&part=Verdicts",
    "/entropy_and_judge?run=a&view=Failures": "run?run=a&view=Trajectories&outcome=not+correct",
    "/studies?study=ablations&view=Next+to+the+paper": "methods?study=ablations&view=Studies&part=Next+to+the+paper",
    "/paper?figure=method&runs=a&runs=b": "methods?figure=method&runs=a&runs=b&view=Paper",
}


@pytest.fixture(scope="module")
def client():
    return TestClient(Starlette(routes=shell.routes()), follow_redirects=False)


@pytest.mark.parametrize(("former", "now"), FORMER.items())
def test_a_former_address_leads_to_the_tab_with_its_parameters(client, former, now):
    answer = client.get(former)
    assert (answer.status_code, answer.headers["location"]) == (307, f"./{now}")


def test_former_pages_are_those_whose_views_are_named_here():
    assert {*FORMER_VIEWS} == {path.removeprefix("/") for path in FORMER_PATHS} | {"run"}


@pytest.mark.parametrize(
    ("path", "view"),
    [(path, view) for path, views in FORMER_VIEWS.items() for view in views] + [(path, "") for path in FORMER_PATHS],
)
def test_a_former_page_leads_to_a_tab_that_is_there(path, view):
    place, _, query = moved(path, [("view", view)]).partition("?")
    there = parse_qs(query, strict_parsing=True)
    [tab] = there["view"]
    assert tab in TABS[place]
    assert {*there.get("part", [])} <= {*PARTS_OF.get(tab, [])}


@pytest.mark.parametrize("path", PATHS)
def test_todays_addresses_stay(path):
    for tab in TABS.get(path.removeprefix("/"), ()):
        assert moved(path, [("view", tab), ("part", "Flow")]) is None
    assert moved(path, [("run", "a")]) is None
