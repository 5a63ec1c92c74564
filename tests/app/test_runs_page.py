from datetime import UTC, datetime, timedelta

import pytest

from tests.app import recorded


def texts(page):
    return [element.value for element in [*page.text, *page.markdown, *page.subheader, *page.caption]]


def column(page, name):
    return list(page.dataframe[0].value[name])


def test_empty_workbench_says_how_to_begin(open_page):
    page = open_page("runs")
    assert not page.exception
    assert "No runs yet" in texts(page)
    assert page.code[0].value == "exgrpo demo"
    assert not page.dataframe


def test_table_shows_state_progress_time_left_and_scores(runs_root, open_page):
    recorded.record(runs_root, recorded.RUNNING, recorded.FINISHED)
    page = open_page("runs")
    assert column(page, "Run") == ["exgrpo live", "exgrpo whole"]
    assert column(page, "State") == [["running"], ["finished"]]
    assert column(page, "Progress") == [60.0, 100.0]
    assert column(page, "Time left") == ["3 s", "\N{EN DASH}"]
    assert column(page, "Method") == ["ExGRPO", "ExGRPO"]
    assert round(column(page, "Pass@1")[1], 1) == 58.0
    assert len(column(page, "Pass@1 curve")[0]) == 18
    assert "2 of 2 runs shown, 1 active" in texts(page)


@pytest.mark.usefixtures("recorded_runs")
def test_state_filter_keeps_matching_runs(open_page):
    page = open_page("runs")
    page.segmented_control(key="state").set_value("Active").run()
    assert sorted(column(page, "Run")) == ["exgrpo live", "waits"]
    page.segmented_control(key="state").set_value("Failed or lost").run()
    assert column(page, "State") == [["failed"], ["failed"]]
    assert column(page, "Health")[0] == ["not finite"]


@pytest.mark.usefixtures("recorded_runs")
def test_search_needs_every_word(open_page):
    page = open_page("runs")
    page.text_input(key="q").set_value("WHOLE dr.grpo").run()
    assert column(page, "Run") == ["on-policy whole"]
    page.text_input(key="q").set_value("nothing like it").run()
    assert "No run matches" in texts(page)


@pytest.mark.usefixtures("recorded_runs")
def test_filters_in_the_address_are_kept(open_page):
    assert column(open_page("runs", state="Active", q="live"), "Run") == ["exgrpo live"]


def test_hostile_name_is_plain_text_in_the_table(runs_root, open_page):
    recorded.record(runs_root, recorded.HOSTILE_RUN)
    (name,) = column(open_page("runs"), "Run")
    assert name.startswith("<img src=x onerror=alert(1)> **b**")
    assert "\x1b" not in name
    assert "\u202e" not in name


def test_supervisor_that_is_away_is_reported_with_its_age(runs_root, open_page):
    recorded.beat(runs_root, datetime.now(UTC) - timedelta(seconds=40))
    shown = texts(open_page("runs"))
    assert any("Supervisor away" in text for text in shown)
    assert any(text.startswith("Last seen 4") for text in shown)


def test_live_supervisor_needs_no_banner(open_page):
    assert not any("upervisor" in text for text in texts(open_page("runs")))


def test_workbench_without_any_supervisor_says_so(runs_root, open_page):
    (runs_root / "workbench" / "supervisor.json").unlink()
    assert any("No supervisor yet" in text for text in texts(open_page("runs")))
