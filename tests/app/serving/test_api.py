"""The queries over HTTP, of a server process as users start it."""

import csv
import io
import json
from dataclasses import replace
from math import nan

import httpx2
import pytest

from app.serving import api
from db.rows.trajectories import SnippetRow
from jobs.queries.table import QUERIES
from tests.app import played, web_server

RUN = "play-finished"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    played.play(root, played.FINISHED)
    server = web_server.start(root)
    yield server
    server.stop()


def get(served, path, token=None, **headers):
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return httpx2.get(f"{served.origin}/api/{path}", headers=headers, timeout=60)


def test_rows_are_those_of_the_command_and_need_the_token(served):
    rows = get(served, f"trajectories?run_id={RUN}&step=3&limit=4", served.token).json()
    assert [(row["run_id"], row["step"]) for row in rows] == [(RUN, 3)] * 4
    curves = get(served, f"curves?run_id={RUN}&metric=reward/mean&metric=policy/entropy", served.token).json()
    assert {name: len(points) for name, points in curves.items()} == {"reward/mean": 14, "policy/entropy": 14}
    refused = get(served, f"run?run_id={RUN}")
    assert (refused.status_code, list(refused.json())) == (403, ["error"])
    assert get(served, f"run?run_id={RUN}", served.token + "x").status_code == 403
    assert get(served, f"run?run_id={RUN}", Cookie=served.cookie()).status_code == 200
    assert get(served, f"run?run_id={RUN}", served.token, Origin="http://evil.example").status_code == 403


def test_a_file_has_all_trajectories_that_match_in_order_with_whole_texts(served):
    query = f"?run_id={RUN}&is_correct=True&sort=-replays"
    answer = get(served, f"trajectories.csv{query}", Cookie=served.cookie())
    assert answer.headers["content-disposition"] == 'attachment; filename="trajectories.csv"'
    listed = [*csv.DictReader(io.StringIO(answer.text))]
    lines = [json.loads(line) for line in get(served, f"trajectories.jsonl{query}", served.token).text.splitlines()]
    assert [row["trajectory_id"] for row in listed] == [str(row["trajectory_id"]) for row in lines]
    counts = [row["num_replays"] for row in lines]
    assert counts == sorted(counts, reverse=True)
    rows = get(served, f"trajectories?run_id={RUN}&correct=true&whole=true&limit=10000", served.token).json()
    assert len(rows) > 150  # more than a batch
    assert {row["trajectory_id"]: row["snippet"] for row in lines} == {
        row["trajectory_id"]: row["snippet"] for row in rows
    }
    assert get(served, f"trajectories.csv{query}").status_code == 403


def test_what_else_was_recorded_is_in_columns_of_the_csv():
    row = SnippetRow(**dict.fromkeys(SnippetRow.__dataclass_fields__))
    batches = [
        [replace(row, extra=extra) for extra in batch]
        for batch in (({"a": 1}, {"b": "x"}), (None, {"a": nan, "c": nan}))
    ]
    written = csv.DictReader(io.StringIO("".join(api._csv(iter(batches)))))
    assert [(line["extra.a"], line["extra.b"], line["extra"]) for line in written] == [
        ("1", "", ""), ("", "x", ""), ("", "", ""), ("", "", '{"c":null}'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "named", "status"),
    [
        ("nothing", "nothing", 404),
        ("run", "run_id", 400),
        ("run?run_id=nobody", "nobody", 404),
        (f"trajectory?run_id={RUN}&trajectory_id=99999", "99999", 404),
        (f"trajectories?run_id={RUN}&limit=0", "limit", 400),
        (f"trajectories?run_id={RUN}&limit=10001", "limit", 400),
        (f"trajectories?run_id={RUN}&limit=1&limit=2", "limit", 400),
        (f"trajectories?run_id={RUN}&stp=1", "stp", 400),
        ("trajectories.csv", "run_id", 400),
        (f"trajectories.csv?run_id={RUN}&step_from=some", "step_from", 400),
    ],
)
def test_what_is_wrong_is_a_sentence_that_names_it(served, path, named, status):
    response = get(served, path, served.token)
    assert response.status_code == status
    assert named in response.json()["error"]


def test_the_document_describes_every_query_and_each_type_that_it_names(served):
    document = get(served, "openapi.json", served.token).json()
    files = {"trajectories.csv": "text/csv", "trajectories.jsonl": "application/x-ndjson"}
    assert set(document["paths"]) == {f"/api/{name}" for name in (*QUERIES, *files)}
    for name, media in files.items():
        described = document["paths"][f"/api/{name}"]["get"]
        assert [*described["responses"]["200"]["content"]] == [media]
        assert [item["name"] for item in described["parameters"] if item["required"]] == ["run_id"]
        assert "-replays" in described["parameters"][-1]["schema"]["enum"]
    schemas = document["components"]["schemas"]

    def references(node):
        if isinstance(node, dict):
            yield from [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            node = list(node.values())
        for item in node if isinstance(node, list) else ():
            yield from references(item)

    assert {name.rpartition("/")[2] for name in references(document)} <= set(schemas)
    parameters = {item["name"]: item for item in document["paths"]["/api/trajectories"]["get"]["parameters"]}
    assert (parameters["run_id"]["required"], parameters["limit"]["schema"]["minimum"]) == (True, 1)
