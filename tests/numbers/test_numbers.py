"""Every number that a page shows of recorded runs is derived again from their files; programs get the same rows."""

import math

import pytest

from exgrpo.jobs.queries import calls
from exgrpo.jobs.queries.frames import open_run
from exgrpo.jobs.queries.table import QUERIES
from tests.jobs.cli.invoked import printed_json
from tests.numbers import record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_EMPTY = {"wrong-choices"}
"""Queries whose answer is empty here."""
_KEYS = {
    "trajectories": ["trajectory_id"], "candidates": ["step", "question_index", "trajectory_id"],
    "evaluations": ["step", "question_set"], "scores": ["benchmark", "scheme"],
}  # fmt: skip
"""What tells the rows of a query apart whose frame has the same name."""


def test_runs(derive):
    derive("runs", 30)


def test_run(derive):
    derive("run", 1500)


def test_compare(derive):
    derive("compare", 200)


def test_buffer(derive):
    derive("buffer", 500)


def test_step(derive):
    derive("step", 100)


def test_snowball(derive):
    derive("snowball", 500)


def test_reasoning(derive):
    derive("reasoning", 600)


def test_results_of_jobs(derive):
    derive("jobs", 40)


def test_benchmarks(derive):
    derive("benchmarks", 205)


def test_trajectories(derive):
    derive("trajectories", 3000)


def test_studies(derive):
    derive("studies", 600)


def test_system(derive):
    derive("system", 50)


def test_paper(derive):
    derive("paper", 1800)


def values_of(root, name):
    """Return the values that a query needs, by the names of its parameters."""
    first, second = (root.by_name[job].run_id for job in record.EVALUATIONS)
    replayed = int(root.by_name[record.CHAINS].replayed["trajectory_id"].iloc[0])
    values = {"trajectory_id": replayed, "mark": record.MARK, "first": first, "second": second, "name": record.STUDY}
    values["run_id"] = first if name == "score-curves" else record.CHAINS
    needed = [key for key, item in calls.parameters(QUERIES[name]).items() if item.default is item.empty]
    return {key: values[key] for key in needed}


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_of_the_table_has_an_answer(recorded_root, name):
    answer = printed_json(recorded_root.path, "query", name, *values_of(recorded_root, name).values())
    assert bool(answer) is (name not in _EMPTY)


@pytest.mark.parametrize("name", _KEYS)
def test_rows_are_those_of_the_frame_of_the_same_name(recorded_root, name):
    whole = ["--whole"] if name == "trajectories" else []
    rows = printed_json(recorded_root.path, "query", name, *values_of(recorded_root, name).values(), *whole)
    run_id = rows[0]["run_id"] if name == "scores" else record.CHAINS
    frame = getattr(open_run(recorded_root.path / run_id), name)()
    for row in [row for row in rows if row.get("run_id", run_id) == run_id]:
        there = frame[(frame[_KEYS[name]] == [row[key] for key in _KEYS[name]]).all(axis=1)].iloc[0]
        shared = {*row} & {*frame.columns}
        assert len(shared) > 2
        assert {key: row[key] for key in shared} == {key: plain(there[key]) for key in shared}


def test_curves_and_buffer_are_those_of_frames(recorded_root):
    run = open_run(recorded_root.path / record.CHAINS)
    curves = printed_json(recorded_root.path, "query", "curves", record.CHAINS)
    metrics = run.metrics()
    assert {*curves} == {*metrics}
    for key, points in curves.items():
        known = metrics[key].loc[[step for step, _ in points]]
        assert [value for _, value in points] == [plain(value) for value in known]
        assert len(points) >= metrics[key].notna().sum()
    buffer = printed_json(recorded_root.path, "query", "buffer", record.CHAINS)
    changes = run.buffer()
    last = changes[changes["kind"].isin(["moved", "retired"])].groupby("question_index").last()
    stored, retired = last[last["kind"] == "moved"], last[last["kind"] == "retired"]
    assert buffer["buckets"] == {str(question): bucket for question, bucket in stored["bucket_to"].items()}
    assert buffer["retired"] == sorted(retired.index)


def plain(value):
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("+00:00", "Z")
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value
