import csv
import inspect
import io
import json

import pandas
import pytest
from typer.testing import CliRunner

from exgrpo.jobs.cli.main import app
from exgrpo.jobs.evaluation.benchmark_questions import load_benchmark
from exgrpo.jobs.evaluation.protocols import protocol_of
from exgrpo.jobs.queries.table import QUERIES
from exgrpo.jobs.specs.evaluation import BenchmarkChoice
from exgrpo_core import recording
from tests.jobs.cli.invoked import WIDE, exgrpo, printed_json
from tests.jobs.queries import seeded
from tests.jobs.queries.seeded import RUN

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    return seeded.seed(tmp_path_factory.mktemp("runs"))


def query(runs_root, *words):
    return printed_json(runs_root, "query", *words)


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_prints_the_same_rows_for_people_and_for_programs(runs_root, name):
    words = {"trajectory_id": "0", "mark": "odd", "first": "eval-first", "second": "eval-second", "name": "repo"}
    run = {"score-curves": "eval-first"}.get(name, RUN)
    parameters = inspect.signature(QUERIES[name]).parameters.values()
    required = [item.name for item in parameters if item.default is item.empty]
    given = [run if item == "run_id" else words[item] for item in required if item not in {"database", "runs_root"}]
    rows = query(runs_root, name, *given)
    lines = exgrpo(runs_root, "query", name, *given).splitlines()
    if isinstance(rows, list):
        assert len(lines) == (len(rows) + 1 if rows else 0)
        assert [json.loads(line) for line in exgrpo(runs_root, "query", name, *given, "--lines").splitlines()] == rows
    else:
        assert json.loads("".join(lines)) == rows


def test_rows_are_written_as_csv_and_parquet_with_nested_values_as_json(runs_root):
    rows = query(runs_root, "judges", "trained")
    printed = list(csv.DictReader(io.StringIO(exgrpo(runs_root, "query", "judges", "trained", "--csv"))))
    assert [row["judge_run_id"] for row in printed] == [row["judge_run_id"] for row in rows]
    assert [json.loads(row["agreement"]) for row in printed] == [row["agreement"] for row in rows]
    errors = [row["standard_error"] for row in query(runs_root, "scores")]
    printed = csv.DictReader(io.StringIO(exgrpo(runs_root, "query", "scores", "--csv")))
    assert None in errors  # of one question
    assert [row["standard_error"] for row in printed] == ["" if error is None else str(error) for error in errors]
    words = ["query", "trajectories", RUN, "--runs-root", str(runs_root), "--limit", "7", "--parquet"]
    result = CliRunner(env=WIDE).invoke(app, words)
    assert "7 rows, as --limit says; there may be more." in result.stderr
    frame = pandas.read_parquet(io.BytesIO(result.stdout_bytes))
    assert frame.to_dict("records") == query(runs_root, "trajectories", RUN, "--limit", "7")
    for words in (["trajectory", RUN, "0", "--csv"], ["trajectories", RUN, "--csv", "--json"]):
        assert "--csv" in exgrpo(runs_root, "query", *words, code=2)


@pytest.mark.parametrize("others", [{"style": "long"}, {}])
def test_a_text_table_has_the_same_columns_in_every_row(tmp_path, others):
    run = recording.start("loop", folder=tmp_path)
    rows = [{"prompt": "1 + 1?", "response": "2", "length": "7\n\t8"}, {"prompt": "2 + 2?", "response": "4", **others}]
    run.log(1, trajectories=rows)
    run.finish()
    names, *cells = (line.split("\t") for line in exgrpo(tmp_path, "query", "trajectories", "loop").splitlines())
    of_csv = csv.DictReader(io.StringIO(exgrpo(tmp_path, "query", "trajectories", "loop", "--csv")))
    assert {len(row) for row in cells} == {len(names)}
    found = [dict(zip(names, row, strict=True)) for row in cells]
    assert {row["extra.length"] for row in found} == {"7\\n\\t8", "null"}
    assert {row["prompt"] for row in found} == {"1 + 1?", "2 + 2?"}
    assert [row["trajectory_id"] for row in found] == [row["trajectory_id"] for row in of_csv]


@pytest.mark.parametrize("name", ["--question", "--step"])
def test_a_number_that_may_be_left_out_has_its_kind_and_bounds_in_the_help(runs_root, name):
    text = exgrpo(runs_root, "query", "trajectories", "--help")
    [line] = [line for line in text.splitlines() if f" {name} " in line]
    assert "<int range>" in line
    assert "Invalid value" in exgrpo(runs_root, "query", "trajectories", RUN, name, "-1", code=2)


def test_retired_questions_become_a_benchmark(runs_root, tmp_path):
    file = tmp_path / "retired.jsonl"
    file.write_text(exgrpo(runs_root, "query", "retired", RUN, "--lines"))
    choice = BenchmarkChoice(name="retired", source=str(file))
    questions = load_benchmark(choice, protocol_of(choice)).questions
    assert len(questions) == len(query(runs_root, "buffer", RUN)["retired"]) > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["buffer", RUN, "--step", "15"], "step: "),
        (["trajectory", RUN, "999999"], f"{RUN}: "),
        (["curves", RUN, "-m", "replay/num_replay"], "metric: "),
        (["verdicts", "trained", "--which", "some"], "--which"),
        (["score-comparison", "eval-first", "nobody"], "RUN: "),
        (["analysis", "trained", "--judge", "trained"], "trained"),
    ],
)
def test_what_is_not_there_is_refused(runs_root, words, said):
    assert said in exgrpo(runs_root, "query", *words, code=2)


def test_journal_lists_what_users_asked_for_newest_first(runs_root):
    exgrpo(runs_root, "annotate", "tag", RUN, "first")
    exgrpo(runs_root, "annotate", "tag", RUN, "second")
    tags = [entry["data"]["tag"] for entry in query(runs_root, "journal", "--limit", "2")]
    assert tags == ["second", "first"]
