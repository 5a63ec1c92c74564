import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing

import pyarrow.parquet as pq
import pytest

from exgrpo.jobs.runs.rollout_formats.formats import find_format, find_only_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, SourceChangedError
from tests.jobs.runs.rollout_formats.test_real_samples import SAMPLES, steps_of_runs


def unpacked(tmp_path, packed):
    file = tmp_path / packed.name.removesuffix(".gz")
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    return file


def read(path):
    """Return the trajectories of each run by its name, each with its step, and the metrics of all."""
    runs = steps_of_runs(path)
    found = {name: [(step.step, one) for step in steps for one in step.trajectories] for name, steps in runs.items()}
    metrics = {step.step: dict(step.metrics) for steps in runs.values() for step in steps if step.metrics}
    return found, metrics


def test_art_has_each_number_of_its_files():
    found, _ = read(SAMPLES / "art")
    folder = SAMPLES / "art"
    for name, split in (("", "train"), ("evaluation", "val")):
        rows = [(int(file.stem), row) for file in sorted((folder / split).glob("*.parquet"))
                for row in pq.read_table(file).to_pylist()]  # fmt: skip
        assert [step for step, _ in found[name]] == [step for step, _ in rows]
        for (_, one), (_, row) in zip(found[name], rows, strict=True):
            metadata = json.loads(row["metadata"])
            assert (one.reward, one.group, one.answer) == (row["reward"], str(row["group_index"]), metadata["answer"])
            assert one.extra == json.loads(row["metrics"]) | {"level": metadata["level"]}
            assert sum(part.is_generated for part in one.messages) == sum(each["trainable"] for each in row["messages"])
    assert [(part.kind, part.tool) for part in found[""][0][1].messages][2:4] == [
        ("tool_call", "add"),
        ("tool_result", "add"),
    ]


def test_an_assistant_message_that_art_does_not_train_is_a_prompt(tmp_path):
    table = pq.read_table(SAMPLES / "art" / "train" / "0001.parquet")
    rows = table.to_pylist()
    rows[0]["messages"][-1]["trainable"] = False
    pq.write_table(table.from_pylist(rows, schema=table.schema), tmp_path / "0004.parquet")
    [(step, first), *_] = read(tmp_path)[0][""]
    assert (step, [part.is_generated for part in first.messages]) == (4, [False, False, True, False, False])


def test_skyrl_has_each_score_and_no_summary():
    found, _ = read(SAMPLES / "skyrl")
    lines = [
        json.loads(line)
        for file in sorted((SAMPLES / "skyrl").glob("*/*/[ms]*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    every = found[""]
    assert {step for step, _ in every} == {10}
    scores = [line["score"] if isinstance(line["score"], float) else sum(line["score"]) for line in lines]
    assert [one.reward for _, one in every] == scores == [0.75, 1.0, 0.0]
    assert [one.answer for _, one in every] == [line["env_extras"]["reward_spec"]["ground_truth"] for line in lines]
    assert [one.is_truncated for _, one in every] == [True, False, False]
    assert [one.messages[1].text for _, one in every] == [line["output_response"] for line in lines]
    assert {one.extra["data_source"] for _, one in every} == {"minus", "sums/plain"}


def test_skyrl_without_a_reason_says_not_whether_a_response_was_cut(tmp_path):
    row = {"input_prompt": "1 + 1?", "output_response": "2", "score": 1.0}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    [(step, one)] = read(tmp_path)[0][""]
    assert (step, one.is_truncated, one.reward) == (0, None, 1.0)


@pytest.mark.parametrize("name", ["local", "lines"])
def test_mlflow_has_the_whole_conversation_and_its_assessments(tmp_path, name):
    path = SAMPLES / "mlflow_traces" / name
    found, _ = read(path if name == "lines" else unpacked(tmp_path, path / "mlflow.db.gz"))
    every = sorted(found[""], key=lambda entry: entry[0])
    database = unpacked(tmp_path, SAMPLES / "mlflow_traces" / "local" / "mlflow.db.gz")
    with closing(sqlite3.connect(database)) as opened:
        query = (
            "SELECT CAST(t.value AS INTEGER), a.value FROM assessments a JOIN trace_tags t ON t.request_id = a.trace_id"
        )
        stored = {kind: dict(opened.execute(f"{query} WHERE t.key = 'step' AND a.name = ?", (kind,)))
                  for kind in ("reward", "expected_response")}  # fmt: skip
    assert {step: one.reward for step, one in every} == {step: float(one) for step, one in stored["reward"].items()}
    assert [one.answer for _, one in every] == [json.loads(stored["expected_response"][step]) for step in (0, 1)]
    for _, one in every:
        assert [(part.role, part.kind) for part in one.messages] == [
            ("user", "text"), ("assistant", "tool_call"), ("tool", "tool_result"), ("assistant", "text"),
        ]  # fmt: skip
        assert (one.extra["is_short"], one.extra["level"]) == (1.0, "easy")


def test_assessments_in_lines_of_mlflow_have_any_value_or_none(tmp_path):
    line = json.loads((SAMPLES / "mlflow_traces" / "lines" / "traces.jsonl").read_text().splitlines()[0])
    given = [
        ("style", {"feedback": {"value": "good"}}), ("digit", {"feedback": {"value": "5"}}),
        ("reward", {"feedback": {"value": 0.25}}), ("reward", {"feedback": {"value": 1.0}, "valid": False}),
        ("judge", {"feedback": {"error": {"error_code": "TIMEOUT"}}}),
    ]  # fmt: skip
    answers = [{"value": "Paris"}, {"serialized_value": {"value": '["a", "b"]', "serialization_format": "JSON_FORMAT"}}]
    lines = []
    for answer in answers:
        every = [*given, ("expected_response", {"expectation": answer})]
        line["info"]["assessments"] = [{"assessment_name": name} | entry for name, entry in every]
        lines.append(json.dumps(line) + "\n")
    (tmp_path / "traces.jsonl").write_text("".join(lines))
    found = [one for _, one in read(tmp_path)[0][""]]
    assert [(one.reward, one.answer) for one in found] == [(0.25, "Paris"), (0.25, '["a", "b"]')]
    for one in found:
        assert (one.extra["style"], one.extra["digit"], "judge" in one.extra) == ("good", "5", False)


def test_traces_of_mlflow_in_progress_are_read_once_they_have_ended(tmp_path):
    file = unpacked(tmp_path, SAMPLES / "mlflow_traces" / "local" / "mlflow.db.gz")
    entry = find_only_format(file)
    source = RolloutSource(file, part=entry.parts(file)[0])
    steps = []
    with closing(sqlite3.connect(file)) as writer:
        first, last = "(SELECT min(rowid) FROM trace_info)", "(SELECT max(rowid) FROM trace_info)"
        for change in (
            f"UPDATE trace_info SET status = 'IN_PROGRESS' WHERE rowid = {first}",
            f"UPDATE trace_info SET status = 'OK', timestamp_ms = 1 WHERE rowid = {first}",
            "UPDATE trace_info SET timestamp_ms = 2",
        ):
            writer.execute(change)
            writer.commit()
            source = RolloutSource(file, json.loads(json.dumps(source.positions)), part=source._part)
            steps.append([step.step for step in entry.read(source)])
        assert (steps, source.bad.num) == ([[1], [0], []], 0)
        writer.execute(f"DELETE FROM trace_info WHERE rowid = {last}")
        writer.commit()
        with pytest.raises(SourceChangedError):
            [*entry.read(RolloutSource(file, source.positions))]
        writer.execute("DELETE FROM spans")
        writer.commit()
    source = RolloutSource(file)
    assert ([*entry.read(source)], source.bad.num) == ([], 1)
    assert "spans: expected those of the trace, found none" in source.bad.sentences[0]


@pytest.mark.parametrize("name", ["sums", "mlflow"])
def test_verl_traced_by_a_tracker_has_each_rollout_once(tmp_path, name):
    found, metrics = read(unpacked(tmp_path, SAMPLES / "verl" / f"{name}.db.gz"))
    assert metrics == ({1: {"critic/score/mean": 0.25}, 2: {"critic/score/mean": 0.5}} if name == "sums" else {})
    assert Counter(step for step, _ in found[""]) == {1: 4, 2: 4}
    assert Counter((one.group, one.answer) for _, one in found[""]) == {("0", "5"): 4, ("1", "3"): 4}
    for _, one in found[""]:
        assert [part.text for part in one.messages][-1] == "It is 5."
        assert (one.num_tokens, one.token_ids, one.log_probs) == (8, [*b"It is 5."], [-0.5] * 8)
    validated = [one for _, one in found["evaluation"]]
    assert [one.reward for one in validated] == [None, None] + ([1.0, 0.0] if name == "sums" else [])


def test_verl_traced_without_texts_says_which_setting_records_them(tmp_path):
    file = unpacked(tmp_path, SAMPLES / "verl" / "sums.db.gz")
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("UPDATE traces SET metadata = replace(CAST(metadata AS TEXT), 'response_text', 'other')")
        opened.commit()
    source = RolloutSource(file)
    [*_] = find_format(file).read(source)
    assert "token2text=True" in source.bad.sentences[0]
