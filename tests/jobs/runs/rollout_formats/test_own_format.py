import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo.jobs.runs.rollout_formats.own_format import load_own_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource
from exgrpo_core.errors import InputError
from exgrpo_core.recording.rows import Message

ROW = {
    "q": "1+1?", "out": {"texts": ["2", "3"]}, "points": 1, "parts": {"form": 0.5}, "at": 7, "style": "short",
    "reward": 9, "none": None,
}  # fmt: skip
MAPPING = "prompt: $.q\nresponse: $.out.texts[1]\nreward: $.points\nrewards: $.parts\nstep: $.at\nanswer: $.none\n"
FUNCTION = """
def _text(row):
    return row["out"]["texts"][1]

def rollout(row):
    if row["q"] == "leave out":
        return None
    return {"prompt": row["q"], "response": _text(row), "reward": row["points"], "step": row["at"],
            "rewards": row["parts"], "style": row["style"]}
"""


@pytest.fixture(params=["format.yaml", "format.py"])
def own_format(request, tmp_path):
    path = tmp_path / request.param
    path.write_text(FUNCTION if path.suffix == ".py" else MAPPING)
    return load_own_format(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".txt", ".parquet"])
def test_a_row_is_what_the_users_format_says_and_the_rest_are_columns(tmp_path, own_format, suffix):
    file = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([ROW]), file)
    else:
        file.write_text(json.dumps(ROW) + "\n")
    source = RolloutSource(file)
    [step] = own_format.read(source)
    [row] = step.trajectories
    assert (step.step, row.reward, row.answer, row.extra) == (7, 1.0, None, {"style": "short", "reward/form": 0.5})
    assert row.messages == (Message("user", "1+1?"), Message("assistant", "3", is_generated=True))
    assert source.bad.num == 0


def test_rows_that_a_format_cannot_read_are_counted_and_those_it_leaves_out_are_not(tmp_path, own_format):
    rows = [ROW, ROW | {"out": 5}, ROW | {"points": "many"}]
    (tmp_path / "3.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = RolloutSource(tmp_path)
    [step] = own_format.read(source)
    assert (len(step.trajectories), source.bad.num) == (1, 2)
    assert source.bad.sentences[0].startswith("3.jsonl, line 2: ")
    assert source.bad.sentences[1] == "3.jsonl, line 3: reward: expected one number, got 'many'"


@pytest.mark.parametrize("name", ["prompt", "reward"])
def test_a_row_without_a_field_that_a_mapping_names_is_told_by_the_fields_name(tmp_path, name):
    (tmp_path / "a.yaml").write_text(f"{MAPPING.replace(f'{name}: $.', f'{name}: $.zz.')}")
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    source = RolloutSource(tmp_path / "rows.jsonl")
    assert [*load_own_format(tmp_path / "a.yaml").read(source)] == []
    assert source.bad.sentences[0].startswith(f"rows.jsonl, line 1: {name}: ")
    with pytest.raises(InputError) as refused:
        load_own_format(tmp_path / "a.yaml", [source.path])
    assert all(word in str(refused.value) for word in ("a.yaml", f"{name}: $.zz.", "rows.jsonl", ", ".join(ROW)))
    with source.path.open("a") as file:
        file.write(json.dumps(ROW | {"zz": {"q": "1+1?", "points": 1}}) + "\n")
    load_own_format(tmp_path / "a.yaml", [source.path])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "prompt: $.q\n"), ("a.yaml", "prompt: q\nresponse: $.a\n"), ("a.yaml", "- x\n"), ("a.py", "1 / 0\n"),
        ("a.yaml", None),
    ],
)  # fmt: skip
def test_a_file_that_describes_no_format_is_refused_by_its_name(tmp_path, name, text):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as refused:
        load_own_format(path)
    assert str(refused.value).startswith(str(path))


def test_steps_are_those_of_numbered_files_where_the_format_names_none(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("messages: $.chat\n")
    for name in ("12.jsonl", "rest.jsonl"):
        chat = [{"role": "user", "content": name}, {"role": "assistant", "content": "yes"}]
        (tmp_path / name).write_text(json.dumps({"chat": chat}) + "\n")
    steps = [*load_own_format(path).read(RolloutSource(tmp_path))]
    assert [(step.step, step.trajectories[0].messages[0].text) for step in steps] == [
        (12, "12.jsonl"), (0, "rest.jsonl"),
    ]  # fmt: skip


def test_the_mapping_for_weave_reads_a_call_as_its_package_gives_it(tmp_path):
    text = (Path(__file__).parents[4] / "docs" / "data.md").read_text()
    mapping = tmp_path / "weave.yaml"
    mapping.write_text(text.partition("# weave.yaml")[2].partition("\n")[2].partition("```")[0])
    call = {  # `Call.to_dict` of weave 0.54.0
        "op_name": "openai.chat.completions.create", "trace_id": "t1", "parent_id": None, "id": "c1", "summary": {},
        "inputs": {"model": "smollm2", "messages": [{"role": "user", "content": "2 + 3?"}]},
        "output": {"choices": [{"index": 0, "message": {"role": "assistant", "content": "It is 5."}}]},
        "attributes": {"step": 3}, "started_at": "2026-11-30 00:00:00+00:00",
    }  # fmt: skip
    (tmp_path / "calls.jsonl").write_text(json.dumps(call) + "\n")
    [step] = load_own_format(mapping).read(RolloutSource(tmp_path / "calls.jsonl"))
    [one] = step.trajectories
    assert [(part.role, part.text, part.is_generated) for part in one.messages] == [
        ("user", "2 + 3?", False),
        ("assistant", "It is 5.", True),
    ]
