"""Every page opens a run that a loop recorded; facts that it lacks are absent."""

import base64
import math
from contextlib import closing
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import update

from exgrpo.app.page_list import PLACES
from exgrpo.db.connections.opening import open_database
from exgrpo.db.tables import models
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo_core import recording
from tests.app.charts import figures
from tests.app.page_texts import tables, texts

pytestmark = pytest.mark.slow

NO_LENGTH = {"prompt": "a word?", "response": "of unknown length", "reward": 1.0}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A root with one run: a step with every fact, one with texts alone, and its id."""
    root = tmp_path_factory.mktemp("recorded")
    run = recording.start("by hand", {"lr": 1e-6}, root)
    rows = [
        {
            "prompt": f"{question} + 1?", "response": f"It is {n}.", "reward": float(n % 2), "verdict": "wrong",
            "tokens": [5, 6], "logprobs": [-0.5, -0.25], "entropies": [0.5, 0.25], "advantage": 0.5, "tool": "calc",
        }
        for question in range(2) for n in range(4)
    ]  # fmt: skip
    run.log(1, {"loss": 0.5, "mine/curve": 1.0}, trajectories=rows)
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    run.log(2, {"loss": 0.25}, trajectories=["text alone", {"messages": [*chat, *chat]}, NO_LENGTH])
    run.finish()
    ingest_all(root, None)
    return root, run.run_id


@pytest.fixture
def recorded_shared(recorded, share):
    share(recorded[0])
    return recorded[1]


@pytest.mark.parametrize(("name", "query"), PLACES)
def test_every_page_opens_it(recorded_shared, open_page, name, query):
    page = open_page(name, run=recorded_shared, **query)
    assert not page.exception
    assert not page.error


def test_the_page_of_the_run_shows_curves_and_settings_and_offers_nothing_that_a_worker_does(
    recorded_shared, open_page
):
    page = open_page("run", run=recorded_shared)
    assert figures(page)
    assert "Newest step: 2" in [caption.value for caption in page.caption], "how many steps there will be is unknown"
    assert {"loss", "mine/curve"} <= {word for text in texts(page) for word in text.replace("**", " ").split()}
    assert not {"Stop", "Resume", "Clone"} & {button.label for button in page.button}
    page = open_page("run", run=recorded_shared, view="Configuration")
    assert not page.exception
    assert "lr: 1.0e-06" in page.code[-1].value


@pytest.mark.usefixtures("recorded_shared")
def test_the_list_of_runs_shows_no_share_that_is_done(open_page):
    assert tables(open_page("runs"))[0].value["Progress"].isna().all()


@pytest.mark.parametrize("number", ["1", "10", "11"])
def test_a_trajectory_is_shown_with_what_is_known_of_it(recorded_shared, open_page, number):
    page = open_page("run", view="Trajectories", run=recorded_shared, trajectory=number)
    assert not page.exception
    shown = texts(page)
    assert any("tool: calc" in text for text in shown) == (number == "1")
    assert not any("nan" in text.lower().split() for text in shown)


def test_answers_to_a_question_are_shown_without_their_lengths(recorded_shared, open_page):
    page = open_page("run", view="Trajectories", run=recorded_shared, trajectory="12", part="Question")
    assert not page.exception
    assert "1 of 1" in [*tables(page)[-1].value["Correct"]]


NAMES = [
    "Loss", "loss", "a b", "a-b", "a/b", "Mean reward", "$x^2$ **b**", ":red[hi]", " spaced ", "<b>&lt;", "漢字", "字",
]  # fmt: skip


@pytest.fixture
def of_metrics(tmp_path, share):
    """`of_metrics(rows)` is the id of a run that records these metrics by step."""

    def made(rows, **config):
        run = recording.start("odd", config, tmp_path)
        for step, metrics in rows.items():
            run.log(step, metrics, trajectories=None)
        run.finish()
        assert not run.num_lost
        ingest_all(tmp_path, None)
        share(tmp_path)
        return run.run_id

    return made


def curves_of(page):
    """The values of each chart as its arrays say them, by their type: (x, y, name in the legend)."""
    found = []
    for figure in figures(page):
        trace = figure["data"][-1]
        arrays = [np.frombuffer(base64.b64decode(trace[name]["bdata"]), trace[name]["dtype"]) for name in "xy"]
        found.append((*(array.tolist() for array in arrays), trace["name"]))
    return found


def test_each_metric_has_its_chart_under_its_name_as_written_and_numbers_in_names_have_their_order(
    of_metrics, open_page
):
    numbered = [f"layer.{number}" for number in (1, 2, 10, 100)]
    values = {name: float(number) for number, name in enumerate([*NAMES, *numbered[::-1]], start=1)}
    page = open_page("run", run=of_metrics({1: values}))
    drawn = [y[-1] for _, y, _ in curves_of(page)]
    assert sorted(drawn) == sorted(values.values())
    assert [value for value in drawn if value > len(NAMES)] == [values[name] for name in numbered]
    shown = [element.value for element in page.markdown]
    assert any(text.startswith(r"**\$x^2\$ \*\*b\*\*** ") for text in shown)
    assert any(text.startswith(r"**\:red\[hi\]** ") for text in shown)
    assert any(text.startswith("**spaced** ") for text in shown)


@pytest.mark.parametrize("first", [2**24 + 1, 2**31 - 9])
def test_curves_have_each_step_and_value_as_recorded(of_metrics, open_page, first):
    values = [0.3, 1e300, -1e-300, 9007199254740991.0, 9007199254740992.0, 16777217.0, 1 / 3, 0.1]
    rows = {first + place: {"odd": value} for place, value in enumerate(values)}
    [(x, y, name)] = curves_of(open_page("run", run=of_metrics(rows)))
    assert (x, y, name) == ([*rows], values, "")


@pytest.mark.parametrize(
    ("values", "linear", "logarithmic"),
    [
        ([(step - 10) * 0.1 for step in range(20)], "", "(of 20 points 11 zero or negative, not drawn)"),
        ([math.nan] * 3, "(of 3 points 3 NaN, not drawn)", "(of 3 points 3 NaN, not drawn)"),
        (
            [1.0, math.inf, -math.inf, 0.0],
            "(of 4 points 2 infinite, not drawn)",
            "(of 4 points 2 infinite, 1 zero or negative, not drawn)",
        ),
        ([1e-300, math.nan, 1e300], "", ""),
    ],
)  # fmt: skip
def test_a_chart_says_how_many_values_its_scale_cannot_show(of_metrics, open_page, values, linear, logarithmic):
    run = of_metrics({step: {"odd": value} for step, value in enumerate(values)})
    assert [name for *_, name in curves_of(open_page("run", run=run))] == [linear]
    assert [name for *_, name in curves_of(open_page("run", run=run, log="true"))] == [logarithmic]


def test_of_many_metrics_the_page_says_how_many_are_drawn(of_metrics, open_page):
    page = open_page("run", run=of_metrics({1: {f"m{number}": 1.0 for number in range(30)}}))
    assert len(curves_of(page)) == 24
    assert "24 of 30 metrics are drawn; **All steps** exports each of them." in [text.value for text in page.caption]


BORN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("steps", "times", "status", "expected"),
    [
        ((0, 60, -3540, -3480), {"started": 0, "ended": -3480}, "finished", "2 min 00 s"),
        ((0, -60, 0, 60), {"started": 0, "ended": 30}, "stopped", "2 min 00 s"),
        ((0, 7200, 3600, 3660), {"started": 0, "ended": 3660}, "failed", "2 h 01 min"),
        ((0, 60), {"started": 0, "ended": 250_000, "last": 90}, "lost", "1 min 30 s"),
        ((), {"started": 0, "ended": -5}, "finished", None),
        ((0, 60), {"started": 0, "ended": None}, "stopped", None),
    ],
)
def test_the_time_taken_is_that_of_the_run_whatever_its_clock_did_or_is_left_out(
    tmp_path, share, open_page, steps, times, status, expected
):
    run = recording.start("of a clock", {}, tmp_path)
    for step in range(len(steps)):
        run.log(step, {"loss": 1.0})
    run.finish()
    ingest_all(tmp_path, None)
    at = {name: None if after is None else BORN + timedelta(seconds=after) for name, after in times.items()}
    with closing(open_database(None, tmp_path)) as database, database.engine.begin() as connection:
        for step, after in enumerate(steps):
            moment = BORN + timedelta(seconds=after)
            connection.execute(update(models.steps).where(models.steps.c.step == step).values(at=moment))
        connection.execute(
            update(models.runs).values(
                status=status, started_at=at["started"], ended_at=at["ended"], last_event_at=at.get("last", BORN)
            )
        )
    share(tmp_path)
    page = open_page("run", run=run.run_id)
    assert [tile.value for tile in page.metric if tile.label == "Time taken"] == ([expected] if expected else [])
