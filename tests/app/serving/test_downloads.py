"""Downloads of trajectories, of a server process as users start it."""

import csv
import io
import json
from dataclasses import replace
from math import nan

import httpx2
import pytest

from app.serving import downloads
from db.rows.trajectories import TrajectoryRow
from tests.app import played, web_server
from tests.jobs.cli.invoked import printed_json

RUN = "play-finished"


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    played.play(root, played.FINISHED)
    return root


@pytest.fixture(scope="module")
def served(runs_root):
    server = web_server.start(runs_root)
    yield server
    server.stop()


def get(served, path, **headers):
    return httpx2.get(f"{served.origin}/download/{path}", headers=headers, timeout=60)


def test_a_file_has_all_trajectories_that_match_in_order_with_whole_texts(served, runs_root):
    query = f"?run_id={RUN}&is_correct=True&sort=-replays"
    answer = get(served, f"trajectories.csv{query}", Cookie=served.cookie())
    assert answer.headers["content-disposition"] == 'attachment; filename="trajectories.csv"'
    listed = [*csv.DictReader(io.StringIO(answer.text))]
    answer = get(served, f"trajectories.jsonl{query}", Cookie=served.cookie())
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["trajectory_id"] for row in listed] == [str(row["trajectory_id"]) for row in lines]
    counts = [row["num_replays"] for row in lines]
    assert counts == sorted(counts, reverse=True)
    rows = printed_json(runs_root, "query", "trajectories", RUN, "--correct", "--whole", "--limit", "10000")
    assert len(rows) > 150  # more than a batch
    assert {row["trajectory_id"]: row["text"] for row in lines} == {row["trajectory_id"]: row["text"] for row in rows}
    assert get(served, f"trajectories.csv{query}").status_code == 403


def test_what_else_was_recorded_is_in_columns_of_the_csv():
    row = TrajectoryRow(**dict.fromkeys(TrajectoryRow.__dataclass_fields__))
    batches = [
        [replace(row, extra=extra) for extra in batch]
        for batch in (({"a": 1}, {"b": "x"}), (None, {"a": nan, "c": nan}))
    ]
    written = csv.DictReader(io.StringIO("".join(downloads._csv(iter(batches)))))
    assert [(line["extra.a"], line["extra.b"], line["extra"]) for line in written] == [
        ("1", "", ""), ("", "x", ""), ("", "", ""), ("", "", '{"c":null}'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "named"), [("trajectories.csv", "run_id"), (f"trajectories.csv?run_id={RUN}&step_from=some", "step_from")]
)
def test_what_is_wrong_is_a_sentence_that_names_it(served, path, named):
    response = get(served, path, Cookie=served.cookie())
    assert response.status_code == 400
    assert named in response.text
