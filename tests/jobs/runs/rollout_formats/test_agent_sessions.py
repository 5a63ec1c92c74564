import gzip
import json
import shutil
from dataclasses import replace

import pytest

from exgrpo.jobs.runs.rollout_formats.formats import find_format, find_only_format, formats_in
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, SourceChangedError
from tests.jobs.runs.rollout_formats.test_real_samples import SAMPLES, steps_of_runs

TRACKIO = SAMPLES / "trackio"


def read(path):
    """Return the trajectories of each run by its name, in the order of their steps and rewards."""
    found = {}
    for name, steps in steps_of_runs(path).items():
        every = [(step.step, one) for step in steps for one in step.trajectories]
        found[name.replace("-", " ")] = sorted(every, key=lambda one: (one[0], one[1].reward))
    return {name: every for name, every in found.items() if every}


def test_sessions_have_what_the_project_has():
    sessions, project = read(TRACKIO / "sessions"), read(TRACKIO / "static")
    assert {name: len(found) for name, found in sessions.items()} == {"by TRL": 4, "own loop": 1}
    for name, found in sessions.items():
        for (step, one), (expected_step, expected) in zip(found, project[name], strict=True):
            texts = [replace(part, text="") if part.kind == "tool_call" else part for part in one.messages]
            assert texts == [replace(part, text="") if part.kind == "tool_call" else part for part in expected.messages]
            assert (step, replace(one, messages=())) == (expected_step, replace(expected, messages=()))


def test_sessions_next_to_their_project_are_not_read_twice(tmp_path):
    (tmp_path / "sums.db").write_bytes(gzip.decompress((TRACKIO / "local" / "sums.db.gz").read_bytes()))
    shutil.copytree(TRACKIO / "sessions", tmp_path / "traces")
    assert (formats_in(tmp_path), find_only_format(tmp_path).title) == ({}, "traces of Trackio")
    assert {name: len(found) for name, found in read(tmp_path).items()} == {"by TRL": 4, "own loop": 1}
    (tmp_path / "4.jsonl").write_text('{"input": "2?", "output": "2", "score": 1.0}\n')
    assert sorted(child.name for child in formats_in(tmp_path)) == ["4.jsonl", "sums.db"]


def test_the_arguments_of_a_call_and_the_thinking_are_kept(tmp_path):
    entries = [
        {"type": "session", "version": 3, "id": "s"},
        {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": "2 + 3?"}},
        {"type": "message", "id": "2", "parentId": "1", "message": {"role": "assistant", "content": "left"}},
        {"type": "model_change", "id": "3", "parentId": "1"},
        {"type": "message", "id": "4", "parentId": "3", "message": {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "A sum."},
            {"type": "toolCall", "id": "c", "name": "add", "arguments": {"first": 2}}]}},
        {"type": "message", "id": "5", "parentId": "4", "message": {"role": "toolResult", "toolCallId": "c",
            "toolName": "add", "content": [{"type": "text", "text": "no"}], "isError": True}},
    ]  # fmt: skip
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    entry, source = find_format(tmp_path), RolloutSource(tmp_path)
    [step] = entry.read(source)
    [one] = step.trajectories
    assert [(part.role, part.kind, part.text, part.tool, part.is_error) for part in one.messages] == [
        ("user", "text", "2 + 3?", "", False), ("assistant", "thinking", "A sum.", "", False),
        ("assistant", "tool_call", '{"first": 2}', "add", False), ("tool", "tool_result", "no", "add", True),
    ]  # fmt: skip
    assert (step.step, one.reward, one.extra) == (0, None, {})
    with file.open("a") as opened:
        opened.write(json.dumps(entries[1] | {"id": "6", "parentId": "5"}) + "\n")
    with pytest.raises(SourceChangedError):
        list(entry.read(source))


@pytest.mark.parametrize("line", ['{"type": "message"}', '{"type": "session", "version": 3, "trackio": {"step": "x"}}'])
def test_a_file_without_a_header_of_a_session_is_a_bad_row(tmp_path, line):
    shutil.copytree(TRACKIO / "sessions" / "sums" / "own-loop", tmp_path / "run")
    (tmp_path / "run" / "z.jsonl").write_text(line + "\n")
    source = RolloutSource(tmp_path)
    assert (sum(len(step.trajectories) for step in find_format(tmp_path).read(source)), source.bad.num) == (1, 1)
