import errno
import gzip
import json
import lzma
import math
import os
import re
import sys
import time
from collections import Counter
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from exgrpo.db.queries.metrics import last_metrics
from exgrpo.db.queries.runs import get_run
from exgrpo.db.queries.trajectory_list import list_snippets
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.jobs.actions import rollout_import
from exgrpo.jobs.actions.import_process import format_file, import_in_process
from exgrpo.jobs.actions.rollout_import import RolloutImport, import_rollouts, open_imports
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.execution.supervisor.indexing import Indexer, open_fresh_index
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.rollout_formats.formats import UnknownRolloutsError, find_format
from exgrpo_core.bounded_json import read_json
from exgrpo_core.errors import UserError
from exgrpo_core.recording import CannotRecordError, RecordedStep, RecordedTrajectory
from tests.jobs.runs.rollout_formats.test_published_writers import NEMO, write
from tests.jobs.runs.rollout_formats.test_verl_dumps import line
from tests.records import lines_of


@pytest.fixture
def dump(tmp_path):
    folder = tmp_path / "rollouts"
    folder.mkdir()
    (folder / "1.jsonl").write_text(line(0, 0, 1.0) + line(0, 1, 0.0))
    return folder


@pytest.fixture
def opened(dump, tmp_path):
    """`opened()` is an import of the dump into one root, as each start of a view makes one."""
    root, imports = tmp_path / "root", []

    def opened():
        imports.append(RolloutImport(dump, find_format(dump), root, "mine"))
        return imports[-1]

    yield opened
    for one in imports:
        one.close()


def recorded(run):
    return [line["step"] for line in lines_of(run, "trajectory")]


def test_what_a_path_gets_is_added_once_also_by_a_later_view(dump, opened, tmp_path):
    first = opened()
    first.advance()
    first.advance()
    folder = tmp_path / "root" / first.run_id
    assert recorded(folder) == [1, 1]
    (dump / "2.jsonl").write_text(line(0, 0, 1.0, 2))
    first.advance()
    first.close()
    assert recorded(folder) == [1, 1, 2]
    second = opened()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    second.advance()
    assert second.run_id == first.run_id
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    with (dump / "2.jsonl").open("a") as file:
        file.write(line(0, 1, 1.0, 2) + "bad\n")
    second.advance()
    assert recorded(folder) == [1, 1, 2, 2]
    assert [line["num_lines"] for line in lines_of(folder, "lost")] == [second.bad.num] == [1]


def test_another_content_under_the_path_is_the_same_run_read_again(dump, opened, tmp_path):
    first = opened()
    first.advance()
    first.close()
    (dump / "1.jsonl").write_text(line(5, 0, 1.0))
    second = opened()
    second.advance()
    assert second.run_id == first.run_id, "links to it stay"
    assert recorded(tmp_path / "root" / second.run_id) == [1]
    [entry] = Journal(tmp_path / "root").entries()
    assert (entry.kind, entry.run_id) == (JournalKind.DELETED, first.run_id)


@pytest.mark.parametrize(
    ("newline", "end", "size", "seconds"),
    [
        ("\n", "\n", 7, math.inf), ("\n", "", 64, math.inf), ("\r\n", "\r\n", 5, math.inf),
        ("\n", "\n", 13, -math.inf),
    ],
)  # fmt: skip
def test_a_file_that_grows_while_it_is_read_is_read_once(dump, opened, tmp_path, newline, end, size, seconds):
    rows = [{"input": f"π{n} 漢字?", "output": "é" * n, "score": n / 8, "step": 1} for n in range(40)]
    content = (newline.join(json.dumps(row, ensure_ascii=False) for row in rows) + end).encode()
    file = dump / "1.jsonl"
    file.write_bytes(content[:100])
    one = opened()
    for start in range(100, len(content), size):
        with file.open("ab") as grows:
            grows.write(content[start : start + size])
        one.advance(seconds)
    while one.advance(seconds):
        pass
    lines = [*lines_of(tmp_path / "root" / one.run_id, "trajectory")]
    assert [line["reward"] for line in lines] == [row["score"] for row in rows]
    assert one.bad.num == 0


def test_an_import_that_was_killed_begins_again(dump, opened, tmp_path):
    first = opened()
    first.advance()
    (dump / "2.jsonl").write_text(line(0, 0, 1.0, 2))
    first._save = lambda: None  # the kill comes before it is kept how far the path was read
    first.advance()
    first.close()
    second = opened()
    second.advance()
    assert second.run_id == first.run_id
    assert recorded(tmp_path / "root" / second.run_id) == [1, 1, 2]


def test_an_import_that_was_killed_before_its_first_end_is_not_shown_beside_the_next(opened, tmp_path):
    first = opened()
    first._reads = replace(first._reads, read=lambda source: iter([*find_format(source.path).read(source)] * 2))
    assert first.advance(give_up_at=0.0)
    first.close()
    second = opened()
    second.advance()
    assert [path.parent.name for path in (tmp_path / "root").glob("*/run.json")] == [second.run_id]


def test_after_an_error_all_is_read_again(dump, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(rollout_import, "_RETRY_SECONDS", 0.0)
    one = opened()

    def broken(source):
        for step in find_format(dump).read(source):
            yield step
            raise ConnectionError

    reads, one._reads = one._reads, replace(one._reads, read=broken)
    with pytest.raises(ConnectionError):
        one.advance()
    one._reads = reads
    one.advance()
    assert recorded(tmp_path / "root" / one.run_id) == [1, 1]
    assert one.num_rollouts == 2


def test_what_the_recorder_cannot_write_ends_the_import_with_its_reason(opened):
    one = opened()
    broken, whole = RecordedTrajectory((), answer=object()), RecordedTrajectory(())
    one._reads = replace(one._reads, read=lambda _: [RecordedStep(1, (broken, whole))])
    one.advance()
    assert (one.num_rollouts, one.bad.num) == (1, 1)
    one._reads = replace(one._reads, read=lambda _: [RecordedStep(2**31, (whole,))])
    with pytest.raises(CannotRecordError) as refused:
        one.advance()
    assert "2147483648" in str(refused.value)


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC])
@pytest.mark.parametrize("num_writes", [0, 1, 3])
def test_an_import_that_has_no_room_is_one_sentence_and_leaves_nothing(dump, tmp_path, monkeypatch, number, num_writes):
    for step in range(2, 6):
        (dump / f"{step}.jsonl").write_text(line(0, 0, 1.0, step))
    write, writes = os.write, iter(range(99))

    def fill(file, content):
        if next(writes) >= num_writes:
            raise OSError(number, os.strerror(number))
        return write(file, content)

    monkeypatch.setattr("exgrpo_core.recording.record_file.os.write", fill)
    with pytest.raises(CannotRecordError, match=f"{os.strerror(number)}; free some space"):
        import_rollouts(dump, find_format(dump), tmp_path / "runs", "mine")
    assert [*(tmp_path / "runs").iterdir()] == []


def test_evaluations_are_a_run_of_their_own(tmp_path):
    for name, reward in (("train_data_step2.jsonl", 1.0), ("val_data_step2.jsonl", 0.0)):
        write(tmp_path / "logs", name, [NEMO | {"rewards": reward}])
    imported = import_rollouts(tmp_path / "logs", find_format(tmp_path / "logs"), tmp_path / "runs", "mine")
    rewards = {}
    for run in (path.parent for path in (tmp_path / "runs").glob("*/run.json")):
        rewards[read_json(run / "run.json")["name"]] = [line["reward"] for line in lines_of(run, "trajectory")]
    assert rewards == {"mine": [1.0], "mine evaluation": [0.0]}
    assert read_json(tmp_path / "runs" / imported.run_id / "run.json")["name"] == "mine"


def test_a_path_that_gets_nothing_is_shown_as_finished_until_it_gets_more(dump, opened, tmp_path, monkeypatch):
    one = opened()
    one.advance()
    outcome = tmp_path / "root" / one.run_id / "attempts" / "0001" / "outcome.json"
    monkeypatch.setattr(rollout_import, "_QUIET_SECONDS", 0.0)
    time.sleep(0.01)
    one.advance()
    assert read_json(outcome)["status"] == "finished"
    (dump / "2.jsonl").write_text(line(0, 0, 1.0, 2))
    one.advance()
    assert recorded(tmp_path / "root" / one.run_id) == [1, 1, 2]


def test_command_imports_whole_rollouts_and_names_what_it_left_out(dump, tmp_path):
    (dump / "2.jsonl").write_text("broken\n" + line(1, 0, 1.0, 2))
    words = ["import", "--rollouts", str(dump), "--name", "mine", "--runs-root", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    run_id = result.stdout.strip()
    assert recorded(tmp_path / "runs" / run_id) == [1, 1, 2]
    assert "2.jsonl, line 1" in result.stderr
    assert [entry.kind for entry in Journal(tmp_path / "runs").entries()] == [JournalKind.IMPORTED]


def test_rollouts_without_one_row_leave_no_run(tmp_path, dump):
    found = find_format(dump)
    (dump / "1.jsonl").write_text("{}\n" * 5)
    with pytest.raises(UnknownRolloutsError, match=r"line 1: .* line 3: .* And 2 more rows\.$"):
        import_rollouts(dump, found, tmp_path / "runs", "none")
    assert [path for path in tmp_path.glob("runs/*") if path.is_dir()] == []


def test_pages_import_by_a_process_with_a_mapping_of_the_users(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"q": "1+1?", "a": "2"}) + "\n")
    with format_file("prompt: $.q\nresponse: $.a\n") as own:
        run_id = import_in_process(tmp_path / "runs", rows, own, origin="sent.jsonl and 1 more").run_id
    assert recorded(tmp_path / "runs" / run_id) == [0]
    run = RunDirectory(tmp_path / "runs" / run_id)
    assert (run.read_run_info()["name"], "sent.jsonl and 1 more" in run.spec_path.read_text()) == ("sent", True)
    with pytest.raises(UserError) as refused:
        import_in_process(tmp_path / "runs", rows)
    assert str(refused.value).startswith(str(rows))


TWO_FILTERS = {"strict-match": [0.0, 0.0, 1.0], "flexible-extract": [1.0, 1.0, 1.0]}


def lm_eval_rows(scores, filter_name, metric="exact_match"):
    return [
        {
            "doc_id": number, "doc": {"q": str(number)}, "target": "1", "filter": filter_name, "metrics": [metric],
            "arguments": {"gen_args_0": {"arg_0": f"{number}?", "arg_1": {}}}, "resps": [["1"]], metric: score,
        }
        for number, score in enumerate(scores)
    ]  # fmt: skip


def runs_of(path, root):
    """The names of the runs that a path becomes, each with its rewards."""
    import_rollouts(path, find_format(path), root, "mine")
    return {
        read_json(run.parent / "run.json")["name"]: [line["reward"] for line in lines_of(run.parent, "trajectory")]
        for run in root.glob("*/run.json")
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"samples_sums_1.jsonl": TWO_FILTERS}, {f"mine sums {name}": score for name, score in TWO_FILTERS.items()}),
        ({"samples_sums_1.jsonl": {None: [1.0, 0.0]}}, {"mine": [1.0, 0.0]}),
        (
            {"samples_sums_1.jsonl": {"none": [1.0]}, "samples_words_1.jsonl": {"none": [0.0]}},
            {"mine sums": [1.0], "mine words": [0.0]},
        ),
        (
            {"a/samples_sums_1.jsonl": {"none": [1.0]}, "b/samples_sums_1.jsonl": {"none": [0.0]}},
            {"mine a/samples_sums_1.jsonl": [1.0], "mine b/samples_sums_1.jsonl": [0.0]},
        ),
        (
            {"samples_sums_1.jsonl": {"x": [1.0], None: [0.5], "y": [0.0]}},
            {"mine sums x": [1.0, 0.5], "mine sums y": [0.0]},
        ),
        (
            {"samples_sums_1.jsonl": {"none": [1.0, 1.0], "strict": [0.0, 1.0]}},
            {"mine sums": [1.0, 1.0], "mine sums strict": [0.0, 1.0]},
        ),
        (
            {"samples_a_2026-01-01.jsonl": {"x": [1.0]}, "samples_a_2026-01-02.jsonl": {"x": [0.0]}},
            {"mine samples_a_2026-01-01.jsonl x": [1.0], "mine samples_a_2026-01-02.jsonl x": [0.0]},
        ),
        ({"samples_s_1.jsonl": {"a/b c": [1.0], "a/b d": [0.0]}}, {"mine s a/b c": [1.0], "mine s a/b d": [0.0]}),
        (
            {"samples_a_1.jsonl": {"x": [1.0], "y": [0.0]}, "samples_b_1.jsonl": {"x": [0.5], "y": [0.25]}},
            {"mine a x": [1.0], "mine a y": [0.0], "mine b x": [0.5], "mine b y": [0.25]},
        ),
        (
            {"samples_gsm8k_cot_zeroshot_1.jsonl": {"a": [1.0], "b": [0.0], "c": [0.5]}},
            {f"mine gsm8k_cot_zeroshot {name}": [score] for name, score in {"a": 1.0, "b": 0.0, "c": 0.5}.items()},
        ),
        (
            {"m1/samples_s_1.jsonl": {"x": [1.0], "y": [0.0]}, "m2/samples_s_1.jsonl": {"x": [0.5]}},
            {"mine m1/samples_s_1.jsonl x": [1.0], "mine s y": [0.0], "mine m2/samples_s_1.jsonl x": [0.5]},
        ),
    ],
)  # fmt: skip
def test_each_task_and_filter_of_lm_eval_is_a_run(tmp_path, files, expected):
    for name, of_filters in files.items():
        rows = [row for filter_name, scores in of_filters.items() for row in lm_eval_rows(scores, filter_name)]
        write(tmp_path / "logs", name, rows)
    assert runs_of(tmp_path / "logs", tmp_path / "runs") == expected
    words = ["import", "--rollouts", str(tmp_path / "logs"), "--runs-root", str(tmp_path / "others")]
    result = CliRunner().invoke(app, words)
    made = {path.parent.name for path in (tmp_path / "others").glob("*/run.json")}
    assert (len(made), sorted(result.stdout.split())) == (len(expected), sorted(made))


@pytest.mark.parametrize(
    ("metrics", "reward"),
    [
        ({"exact_match": 1.0}, 1.0), ({"acc": 1.0, "acc_norm": 0.0}, 1.0), ({"rouge1": 0.25, "rouge2": 0.125}, None),
        ({"f1": 0.5}, 0.5), ({"f1": 0.5, "exact_match": 0.0}, 0.0), ({}, None),
    ],
)  # fmt: skip
def test_metrics_of_lm_eval_are_a_curve_each_and_only_a_verdict_or_the_only_one_is_the_reward(
    tmp_path, metrics, reward
):
    [row] = lm_eval_rows([0.0], "none")
    path = write(tmp_path / "logs", "samples_sums_1.jsonl", [row | {"metrics": [*metrics]} | metrics])
    imported = import_rollouts(path, find_format(path), tmp_path / "runs", "mine")
    [line] = lines_of(tmp_path / "runs" / imported.run_id, "trajectory")
    prefix = "reward/" if len(metrics) > 1 else ""
    assert (line.get("reward"), {name: line["extra"][f"{prefix}{name}"] for name in metrics}) == (reward, metrics)


@pytest.mark.parametrize("metric", ["exact_match", "acc"])
def test_rows_of_lm_eval_that_name_no_metrics_have_the_verdict_that_they_hold(tmp_path, metric):
    rows = [
        {name: value for name, value in row.items() if name != "metrics"}
        for row in lm_eval_rows([1.0, 0.0], "none", metric)
    ]
    assert runs_of(write(tmp_path / "logs", "samples_sums_1.jsonl", rows), tmp_path / "runs") == {"mine": [1.0, 0.0]}


@pytest.fixture
def inspect(monkeypatch):
    """The reader of Inspect's package, which the tests' environment lacks: the samples of a log in JSON."""
    package, log = ModuleType("inspect_ai"), ModuleType("inspect_ai.log")
    package.__spec__ = ModuleSpec("inspect_ai", None)
    log.read_eval_log_samples = lambda name, **_: (
        SimpleNamespace(model_dump=lambda row=row, **_: row) for row in read_json(Path(name))["samples"]
    )
    monkeypatch.setitem(sys.modules, "inspect_ai", package)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", log)


def inspect_log(folder, name, epochs):
    """A log whose samples have one list of scores an epoch; a score is a value or values by scorer."""
    samples = [
        {
            "id": number, "epoch": epoch, "target": "2", "error": None,
            "messages": [
                {"role": "user", "content": f"{number}?", "source": "input"}, {"role": "assistant", "content": "2"},
            ],
            "scores": {
                scorer: {"value": value}
                for scorer, value in (score if isinstance(score, dict) else {"match": score}).items()
            },
        }
        for epoch, scores in enumerate(epochs, 1) for number, score in enumerate(scores)
    ]  # fmt: skip
    content = {"version": 2, "status": "success", "eval": {}, "samples": samples}
    path = folder / f"2026-11-27T20-00-00_{name}_id.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.mark.usefixtures("inspect")
@pytest.mark.parametrize(
    ("epochs", "mean", "groups"),
    [
        ([["C", "C", "C"], ["I", "I", "I"]], 0.5, 3), ([["C", "I"], ["C", "I"], ["I", "I"]], 1 / 3, 2),
        ([["C", "P", "N", "I"]], 0.375, 4), ([["yes", "No"], ["TRUE", "false"]], 0.5, 2),
        ([["0.25", "1"], ["0", "0.75"]], 0.5, 2), ([["C", "I"], [{}, "C"]], 2 / 3, 2),
        ([["C", "I"], [{"match": None}, "C"]], 2 / 3, 2), ([[1000, -1], [0, 3]], 250.5, 2),
        ([["yes", "C"], ["I", 0.5]], 0.625, 2), ([["C", "I", "I"], ["C", "C", "I"], ["C", "C", "C"]], 6 / 9, 3),
    ],
)  # fmt: skip
def test_epochs_of_inspect_are_the_rollouts_of_a_group_and_the_mean_is_over_all(tmp_path, epochs, mean, groups):
    inspect_log(tmp_path / "logs", "sums", epochs)
    path = tmp_path / "logs"
    imported = import_rollouts(path, find_format(path), tmp_path / "runs", "mine")
    lines = [*lines_of(tmp_path / "runs" / imported.run_id, "trajectory")]
    assert ({line["step"] for line in lines}, len(lines)) == ({0}, len(epochs) * groups)
    assert not any("error" in line.get("extra", {}) for line in lines), "no sample failed"
    assert sorted(Counter(line["question_id"] for line in lines).values()) == [len(epochs)] * groups
    with open_fresh_index(tmp_path / "runs", None) as database:
        assert last_metrics(database, imported.run_id)["reward/mean"] == pytest.approx(mean)


@pytest.mark.usefixtures("inspect")
@pytest.mark.parametrize(
    "scores",
    [{"match": 1, "f1": 0.5, "words": 0.25}, {"safety": {"harm": 0.5, "help": 1}}, {"match": "yes", "note": "long"}],
)
def test_scorers_of_inspect_are_a_curve_each_without_a_total(tmp_path, scores):
    inspect_log(tmp_path / "logs", "sums", [[scores, scores]])
    path = tmp_path / "logs"
    imported = import_rollouts(path, find_format(path), tmp_path / "runs", "mine")
    flat = {"safety/harm": 0.5, "safety/help": 1} if "safety" in scores else scores
    counted = {"C": 1.0, "I": 0.0, "yes": 1.0, "NO": 0.0, "0.5": 0.5}
    expected = {name: counted.get(value, value) for name, value in flat.items() if value != "long"}
    with open_fresh_index(tmp_path / "runs", None) as database:
        found = last_metrics(database, imported.run_id)
    assert {name: value for name, value in found.items() if name.startswith("reward/")} == {
        f"reward/{name}": value for name, value in expected.items()
    }


@pytest.mark.usefixtures("inspect")
@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ({"sums": "C"}, {"mine": [1.0]}),
        ({"sums": "C", "words": "I"}, {"mine sums": [1.0], "mine words": [0.0]}),
        ({"sums": "C", "two_words": "P", "x": 0.25}, {"mine sums": [1.0], "mine two_words": [0.5], "mine x": [0.25]}),
        ({"a/x": "C", "a/y": "I", "b/x": "P"}, {"mine a/": [1.0], "mine y": [0.0], "mine b/": [0.5]}),
    ],
)
def test_each_log_of_inspect_is_a_run(tmp_path, logs, expected):
    for name, score in logs.items():
        folder, _, task = name.rpartition("/")
        inspect_log(tmp_path / "logs" / folder, task, [[score]])
    found = runs_of(tmp_path / "logs", tmp_path / "runs")
    assert {name.split("2026")[0]: rewards for name, rewards in found.items()} == expected


def test_a_task_and_a_filter_that_come_later_are_shown_too(tmp_path):
    write(tmp_path / "logs", "samples_sums_1.jsonl", lm_eval_rows([1.0], "x"))
    path = tmp_path / "logs"
    given = {path: find_format(path)}, {path: "mine"}, tmp_path / "root"
    known = open_imports(*given)
    assert [one.part.name for one in known] == [""]
    assert open_imports(*given, known) == []
    write(path, "samples_sums_1.jsonl", lm_eval_rows([1.0], "x") + lm_eval_rows([0.0], "y"))
    write(path, "samples_words_1.jsonl", lm_eval_rows([0.5], "none"))
    new = open_imports(*given, known)
    assert [one.part.name for one in new] == ["sums y", "words"]
    for one in [*known, *new]:
        one.advance()
        one.close()
    rewards = [[line["reward"] for line in lines_of(given[2] / one.run_id, "trajectory")] for one in [*known, *new]]
    assert rewards == [[1.0], [0.0], [0.5]]


STEPS = [3, 3.0, "3", "3.0", " 3 ", "3e0"]
NO_STEPS = [-1, 2.5, "x", None, True, 10**12, "-1", float("inf"), "", [3]]


def test_a_step_as_text_or_float_is_a_step_and_others_are_named_wherever_the_run_is_shown(tmp_path):
    rows = [{"input": f"{n}?", "output": "2", "score": 1.0, "step": step} for n, step in enumerate(STEPS + NO_STEPS)]
    path = write(tmp_path / "dump", "verl.jsonl", rows)
    imported = import_rollouts(path, find_format(path), tmp_path / "runs", "mine")
    assert recorded(tmp_path / "runs" / imported.run_id) == [3] * len(STEPS)
    assert imported.bad.num == len(NO_STEPS)
    named = [f"verl.jsonl, line {number}:" for number in range(len(STEPS) + 1, len(rows) + 1)]
    with open_fresh_index(tmp_path / "runs", None) as database:
        row = get_run(database, imported.run_id)
    assert row.health == ("not_recorded",)
    assert all(any(name in sentence for sentence in row.left_out) for name in named)
    words = [imported.run_id, "--runs-root", str(tmp_path / "runs")]
    for query in ("trajectories", "curves", "run"):
        result = CliRunner().invoke(app, ["query", query, *words])
        assert result.exit_code == 0, result.output
        assert all(name in result.stderr for name in named)


def test_rows_beyond_those_that_are_named_are_counted(tmp_path):
    path = write(
        tmp_path / "dump", "verl.jsonl", [{"input": "1?", "output": "2", "score": 1.0, "step": 1}] * 9 + [{}] * 40
    )
    imported = import_rollouts(path, find_format(path), tmp_path / "runs", "mine")
    counts = [line["num_lines"] for line in lines_of(tmp_path / "runs" / imported.run_id, "lost")]
    assert (sum(counts), imported.bad.num) == (40, 40)
    with open_fresh_index(tmp_path / "runs", None) as database:
        left_out = get_run(database, imported.run_id).left_out
    assert sum(int(sentence.split(": ", 1)[1].split()[0]) for sentence in left_out) == 40


@pytest.mark.parametrize(
    ("columns", "parts", "reward"),
    [
        ({"acc": [1.0, 0.0], "fmt": [0.5, 0.25]}, {"reward/acc": [1.0, 0.0], "reward/fmt": [0.5, 0.25]}, None),
        ({"acc": [1.0, 0.0]}, {"acc": [1.0, 0.0]}, [1.0, 0.0]),
        (
            {"acc": [1.0, float("nan")], "b": [float("nan"), 1.0]},
            {"reward/acc": [1.0, None], "reward/b": [None, 1.0]},
            None,
        ),
        ({"acc": [1.0, 0.0], "b": [None, None]}, {"reward/acc": [1.0, 0.0]}, None),
        ({"acc": [1.0, 0.0], "b": [float("nan")] * 2}, {"reward/acc": [1.0, 0.0]}, None),
        ({"acc": [1.0, None], "b": [None, None], "c": [0.5, 0.25]}, {"reward/acc": [1.0, None]}, None),
        ({"acc": [1.0, None]}, {"acc": [1.0, None]}, [1.0, None]),
        ({"acc": [None, 0.0], "note": ["a", "b"]}, {"acc": [None, 0.0], "note": ["a", "b"]}, [None, 0.0]),
    ],
)
@pytest.mark.parametrize("writer", ["trl", "swift"])
def test_reward_functions_are_a_curve_each_and_a_total_is_that_of_the_only_one(
    tmp_path, writer, columns, parts, reward
):
    own = {"step": [1, 1], "prompt": ["2?", "3?"], "completion": ["2", "3"]}
    if writer == "trl":
        path = tmp_path / "dump" / "completions_00001.parquet"
        path.parent.mkdir()
        numbers = {name: pa.array(values, pa.float64()) for name, values in columns.items() if name != "note"}
        pq.write_table(pa.table(own | {"advantage": [0.5, -0.5]} | columns | numbers), path)
    else:
        plain = {name: [value if value == value else None for value in values] for name, values in columns.items()}
        path = write(tmp_path / "dump", "completions.jsonl", [own | {"advantages": [0.5, -0.5]} | plain])
    imported = import_rollouts(path, find_format(path), tmp_path / "runs", "mine")
    lines = [*lines_of(tmp_path / "runs" / imported.run_id, "trajectory")]
    assert [line.get("reward") for line in lines] == (reward or [None, None])
    assert {name: [line.get("extra", {}).get(name) for line in lines] for name in parts} == parts
    with open_fresh_index(tmp_path / "runs", None) as database:
        found = last_metrics(database, imported.run_id)
    expected = {name: [value for value in values if value is not None] for name, values in parts.items()}
    means = {name: sum(values) / len(values) for name, values in expected.items() if name.startswith("reward/")}
    assert {name: value for name, value in found.items() if name in parts} == means
    assert ("reward/mean" in found) == (reward is not None)


def test_a_run_that_is_rewritten_while_it_is_followed_keeps_its_address_in_the_index_too(dump, opened, tmp_path):
    root = tmp_path / "root"
    one = opened()
    one.advance()
    index = Indexer(None, root)
    index.catch_up()
    contents = [
        line(5, 0, 1.0),
        line(0, 0, 0.0) + line(0, 1, 0.0),
        line(1, 0, 0.5, 7),
        line(1, 0, 0.5, 7) + line(2, 0, 1.0, 8),
    ]
    for content in contents:
        (dump / "1.jsonl").write_text(content)
        one.advance()
        expected = [json.loads(row)["score"] for row in content.splitlines()]
        index.catch_up()
        index.catch_up()
        with open_fresh_index(root, None) as database:
            found = [row.reward for row in list_snippets(database, TrajectoryFacets(run_id=one.run_id), limit=10)]
        assert sorted(found) == sorted(expected)
    index.close()


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.parquet.gz", gzip.compress(b"PAR1", mtime=0), "is compressed (gzip)"),
        ("a.jsonl.bz2", b"BZh9", "is compressed (bzip2)"),
        ("a.jsonl.xz", lzma.compress(b"{}"), "is compressed (xz)"),
        ("a.zip", b"PK\x03\x04\x00", "is compressed (zip)"),
        ("a.jsonl.lzma", lzma.compress(b"{}", lzma.FORMAT_ALONE), "is compressed (lzma)"),
        ("a.txt", b"no rollouts", "holds no rollouts of a known format"),
    ],
)
def test_a_compressed_file_is_called_so(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path / name, tmp_path):
        with pytest.raises(UnknownRolloutsError, match=re.escape(why)):
            find_format(path)
