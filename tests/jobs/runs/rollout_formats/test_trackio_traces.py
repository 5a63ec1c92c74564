import gzip
import json
import sqlite3
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo.jobs.runs.rollout_formats.formats import UnknownRolloutsError, find_format
from exgrpo.jobs.runs.rollout_formats.source import BadRows, RolloutSource, SourceChangedError
from tests.jobs.runs.rollout_formats.test_real_samples import SAMPLES, steps_of_runs

TRACKIO = SAMPLES / "trackio"


@pytest.fixture
def local(tmp_path):
    folder = tmp_path / "trackio"
    folder.mkdir()
    (folder / "sums.db").write_bytes(gzip.decompress((TRACKIO / "local" / "sums.db.gz").read_bytes()))
    return folder


def rows_of(file, table):
    with closing(sqlite3.connect(file)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(f"SELECT * FROM {table}")]


def read(path):
    """Return the metrics and the trajectories of each run, by its name."""
    assert find_format(path).title == "traces of Trackio"
    return {
        name: (
            [(step.step, dict(step.metrics)) for step in steps if step.metrics],
            [(step.step, one) for step in steps for one in step.trajectories],
        )
        for name, steps in steps_of_runs(path).items() if steps
    }  # fmt: skip


def find_format_or_none(path):
    try:
        return find_format(path)
    except UnknownRolloutsError:
        return None


def is_kept(name):
    return name not in {"reward", "advantage", "group_id", "completion_tokens", "rewards"} and "rewards/" not in name


def test_each_number_is_that_of_the_project(local):
    traces, metrics = rows_of(local / "sums.db", "traces"), rows_of(local / "sums.db", "metrics")
    found = read(local)
    assert sorted(found) == sorted({row["run_name"] for row in traces}) == ["by TRL", "own loop"]
    for name, (of_steps, trajectories) in found.items():
        logged = [(row["step"], json.loads(row["metrics"])) for row in metrics if row["run_name"] == name]
        assert of_steps == [(step, values) for step, values in logged if values]
        own = [row for row in traces if row["run_name"] == name]
        for row, (step, one) in zip(own, trajectories, strict=True):
            given, messages = json.loads(row["metadata"]), json.loads(row["messages"])
            assert (step, one.reward, one.advantage) == (row["step"], given["reward"], given.get("advantage"))
            assert (one.group, one.num_tokens) == (
                str(given["group_id"]) if "group_id" in given else None, given.get("completion_tokens")
            )  # fmt: skip
            assert [part.role for part in one.messages] == [message["role"] for message in messages]
            assert one.messages[-1].text == messages[-1]["content"]
            assert one.messages[-1].is_generated
            assert {name: one.extra[name] for name in given if is_kept(name)} == {
                name: value for name, value in given.items() if is_kept(name)
            }


def test_several_reward_functions_are_parts_of_the_reward_and_tools_are_shown(local):
    [(_, one)] = read(local)["own loop"][1]
    assert (one.reward, one.extra["reward/is_right"], one.extra["reward/is_short"]) == (0.75, 1.0, 0.5)
    assert [(part.role, part.kind, part.tool) for part in one.messages][2:4] == [
        ("assistant", "tool_call", "add"), ("tool", "tool_result", "add")
    ]  # fmt: skip


@pytest.mark.parametrize("export", ["parquet", "static"])
def test_an_export_has_what_the_project_has(local, export):
    assert read(TRACKIO / export) == read(local)


def test_an_export_next_to_its_project_is_not_read_twice(local):
    for file in (TRACKIO / "parquet").iterdir():
        (local / file.name).write_bytes(file.read_bytes())
    assert {name: len(trajectories) for name, (_, trajectories) in read(local).items()} == {"by TRL": 4, "own loop": 1}


def test_two_projects_with_runs_of_one_name_are_told_apart(local):
    (local / "more.db").write_bytes((local / "sums.db").read_bytes())
    assert len(read(local)) == 4


def test_rows_that_are_written_later_are_read_on(local):
    """The writer has the file open, and has not moved its rows from the log into the file."""
    entry = find_format(local)
    [part] = [part for part in entry.parts(local) if part.name == "by TRL"]
    source = RolloutSource(local, part=part)
    assert sum(len(step.trajectories) for step in entry.read(source)) == 4
    with closing(sqlite3.connect(local / "sums.db")) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        for number, step in ((1, 3), (2, 4)):
            writer.execute(
                "INSERT INTO traces SELECT id || ?, run_id, timestamp, run_name, ?, key, trace_index, messages,"
                " metadata, search_text, log_id, space_id, spans FROM traces WHERE step = 1 LIMIT 1",
                (str(number), step),
            )  # fmt: skip
            writer.execute(
                "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics)"
                " SELECT run_id, timestamp, run_name, ?, ? FROM traces WHERE step = 1 LIMIT 1",
                (step, b'{"loss": 0.125}'),
            )  # fmt: skip
            writer.commit()
            found = list(entry.read(source))
            assert [(one.step, dict(one.metrics), len(one.trajectories)) for one in found] == [
                (step, {"loss": 0.125}, 0), (step, {}, 1)
            ]  # fmt: skip
        again = RolloutSource(local, source.positions, part=part)
        assert list(entry.read(again)) == []
        writer.execute("DELETE FROM traces WHERE step > 1")
        writer.commit()
    with pytest.raises(SourceChangedError):
        list(entry.read(source))


def test_rows_of_another_shape_are_bad_rows(local):
    with closing(sqlite3.connect(local / "sums.db")) as writer:
        writer.execute("UPDATE traces SET metadata = '[1]' WHERE step = 1 AND trace_index = 0")
        writer.execute("UPDATE traces SET messages = 'no list' WHERE step = 1 AND trace_index = 1")
        writer.execute("UPDATE metrics SET metrics = '[2]' WHERE step = 2")
        writer.execute("UPDATE metrics SET step = -1 WHERE step = 3")
        writer.commit()
    bad, entry = BadRows(), find_format(local)
    steps = [step for part in entry.parts(local) for step in entry.read(RolloutSource(local, bad=bad, part=part))]
    assert sum(len(step.trajectories) for step in steps) == 3
    assert bad.num == 2 + len([row for row in rows_of(local / "sums.db", "metrics") if row["step"] in {2, -1}])


@pytest.mark.parametrize("cut", [5_000, 60_000])
def test_a_damaged_project_never_stops_the_reading(local, cut):
    content = bytearray((local / "sums.db").read_bytes())
    content[cut:] = bytes(len(content) - cut)
    (local / "sums.db").write_bytes(content)
    entry = find_format_or_none(local)
    for part in entry.parts(local) if entry else ():
        list(entry.read(RolloutSource(local, part=part)))


def test_other_databases_and_tables_are_not_trackios(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("CREATE TABLE traces (id TEXT, step INTEGER)")
    assert find_format_or_none(tmp_path) is None
    pq.write_table(pq.read_table(TRACKIO / "static" / "metrics.parquet"), tmp_path / "b_traces.parquet")
    assert find_format_or_none(tmp_path).title != "traces of Trackio"


def log(file, **values):
    """Add a row of metrics as a run named `tables`, whose steps Trackio counts from 0."""
    with closing(sqlite3.connect(file)) as database:
        [(step,)] = database.execute("SELECT count(*) FROM metrics WHERE run_id = 'r'")
        columns = "timestamp, run_name, step, metrics, log_id, run_id"
        row = (step, json.dumps(values), f"x{step}")
        database.execute(f"INSERT INTO metrics ({columns}) VALUES ('t', 'tables', ?, ?, ?, 'r')", row)
        database.commit()


def table_of(step, *completions):
    rows = [{"step": step, "prompt": "2+3?", "completion": text, "advantage": 0.0} for text in completions]
    return {"_type": "trackio.table", "_value": rows}


@pytest.mark.parametrize("is_followed", [False, True])
def test_numbers_and_tables_of_a_run_of_trl_stand_on_its_steps_and_the_last_table_counts_once(local, is_followed):
    """`GRPOTrainer.log` logs numbers, then a table; both count as a step of Trackio. At the end it logs both again."""
    file, entry = local / "sums.db", find_format(local)
    log(file, loss=0.5)
    [part] = [part for part in entry.parts(local) if part.name == "tables"]
    source, found = RolloutSource(local, part=part), []
    given = [
        {"loss": 0.25, "train/global_step": 5}, {"completions": table_of(5, "5", "6")},
        {"loss": 0.125, "train/global_step": 6}, {"completions": table_of(6, "5", "5")},
        {"train_runtime": 9.0, "train/global_step": 6}, {"completions": table_of(6, "5", "5")},
    ]  # fmt: skip
    for values in given:
        log(file, **values)
        if is_followed:
            found += entry.read(source)
            source = RolloutSource(local, source.positions, part=part)
    found += entry.read(source)
    assert [(step.step, step.metrics.get("loss")) for step in found if step.metrics] == [
        (0, 0.5), (5, 0.25), (6, 0.125), (6, None),
    ]  # fmt: skip
    texts = [(step.step, one.messages[-1].text) for step in found for one in step.trajectories]
    assert texts == [(5, "5"), (5, "6"), (6, "5"), (6, "5")]


def test_completions_that_trl_logs_as_a_table_are_rollouts(local):
    rows = [
        {"step": 7, "prompt": "2+3?", "completion": "5", "is_right": 1.0, "kl": 0.25, "advantage": 0.5},
        {"step": 7, "prompt": "7-4?", "completion": [{"role": "assistant", "content": "4"}], "is_right": None,
         "kl": 0.5, "advantage": -0.5},
    ]  # fmt: skip
    tables = {"completions": rows, "other": [{"loss": 1.0}]}
    values = {name: {"_type": "trackio.table", "_value": found} for name, found in tables.items()}
    log(local / "sums.db", **values, logged_next=2.0)
    metrics, found = read(local)["tables"]
    assert metrics == [(0, {"logged_next": 2.0})]
    assert [(step, one.messages[-1].text, one.reward, one.advantage) for step, one in found] == [
        (7, "5", 1.0, 0.5), (7, "4", None, -0.5),
    ]  # fmt: skip
    assert [one.extra["kl"] for _, one in found] == [0.25, 0.5]


EXPORTS = [("sums.parquet", "sums_configs.parquet"), ("metrics.parquet", "aux/configs.parquet")]


@pytest.mark.parametrize("names", EXPORTS)
def test_exports_of_tables_have_the_rollouts_of_the_project_and_a_table_that_is_logged_again_counts_once(
    local, tmp_path, names
):
    """As `_flatten_json_rows` of Trackio 0.43.0 writes them; a step of TRL logs the last generation again."""
    for step, texts in enumerate([("5", "6"), ("5", "6"), ("6", "6")], start=1):
        log(local / "sums.db", loss=0.5, completions=table_of(step, *texts), **{"train/global_step": step})
    rows = [row for row in rows_of(local / "sums.db", "metrics") if row["run_id"] == "r"]
    flat = [{name: row[name] for name in row if name != "metrics"} | json.loads(row["metrics"]) for row in rows]
    (tmp_path / "export" / "aux").mkdir(parents=True)
    for name, exported in zip(names, (flat, [{"run_id": "r"}]), strict=True):
        pq.write_table(pa.Table.from_pylist(exported), tmp_path / "export" / name)
    metrics, found = read(tmp_path / "export")[""]
    assert (metrics, found) == read(local)["tables"]
    assert [(step, one.messages[-1].text) for step, one in found] == [(1, "5"), (1, "6"), (3, "6"), (3, "6")]
    pq.write_table(pa.Table.from_pylist([{"step": 1, "loss": 2.0}]), tmp_path / "export" / "other.parquet")
    assert read(tmp_path / "export")[""] == (metrics, found)
