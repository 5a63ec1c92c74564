"""Addresses of former pages lead to where their content is."""

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from exgrpo.app.page_list import PATHS, TABS, moved
from exgrpo.app.serving import shell

FORMER = {
    "/run?view=Replay+buffer": "run?view=Buffer&part=Over+time",
    "/run?run=a&view=Attempts": "run?run=a&view=Configuration&part=Attempts",
    "/replay_buffer": "run?view=Buffer",
    "/replay_buffer?run=a&view=What+if&step=3": "run?run=a&step=3&view=Step",
    "/run?run=a&view=Buffer&part=What+if&step=3": "run?run=a&step=3&view=Step",
    "/trajectories?run=a&trajectory=1&part=Lineage": "run?run=a&trajectory=1&part=Lineage&view=Trajectories",
    "/selection_audit?view=Weights+and+variance": "run?view=Step&part=Weights+and+variance",
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


@pytest.mark.parametrize("path", PATHS)
def test_todays_addresses_stay(path):
    for tab in TABS.get(path.removeprefix("/"), ()):
        assert moved(path, [("view", tab), ("part", "Flow")]) is None
    assert moved(path, [("run", "a")]) is None
