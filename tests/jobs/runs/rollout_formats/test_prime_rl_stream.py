import json

import pyarrow as pa
import pytest

from exgrpo.jobs.runs.rollout_formats import trace_updates
from exgrpo.jobs.runs.rollout_formats.formats import find_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource
from tests.jobs.runs.rollout_formats.test_real_samples import SAMPLES

RUN = SAMPLES / "traces" / "prime_rl_stream"
TRACES = RUN / "monitors" / "file" / "traces"


def records(folder):
    texts = []
    for file in sorted(folder.iterdir()):
        with pa.input_stream(str(file), compression="zstd" if file.suffix == ".zst" else None) as opened:
            texts.append(opened.read().decode())
    return [json.loads(line) for line in "".join(texts).splitlines()]


def read(path):
    """Return the steps and trajectories of training and of evaluation, and the sentences about bad rows."""
    entry = find_format(path)
    found = []
    for part in entry.parts(path):
        source = RolloutSource(path, part=part)
        found.append([(step.step, one) for step in entry.read(source) for one in step.trajectories])
    return (*found, source.bad.sentences)


def of_sampled(trace, values):
    mask = [is_own for node in trace["nodes"] for is_own in node["mask"]]
    return [value for value, is_own in zip(values, mask, strict=True) if is_own]


def test_each_number_is_that_of_the_files():
    training, evaluation, bad = read(RUN)
    of_ship = {row["trace_id"]: row for row in records(TRACES / "annotations" / "orch")}
    of_trainer = {row["trace_id"]: row for row in records(TRACES / "annotations" / "trainer")}
    for kind, found in (("train", training), ("eval", evaluation)):
        rows = [row for row in records(TRACES / "stream") if row["run"]["work"]["type"] == kind]
        assert [step for step, _ in found] == [row["run"]["work"]["step"] for row in rows]
        for row, (_, one) in zip(rows, found, strict=True):
            [trace] = row["traces"]
            ship, trainer = of_ship.get(trace["id"]), of_trainer.get(trace["id"])
            assert one.reward == trace["rewards"]["is_right"]["score"]
            assert one.log_probs == [value for node in trace["nodes"] for value in node.get("logprobs") or ()]
            assert one.group == row["group"]["id"]
            assert one.extra["trained"] == (ship is not None)
            assert one.extra["ship_step"] == (ship and ship["info"]["ship"]["step"])
            assert one.advantage == (ship and ship["info"]["advantage"])
            assert one.entropies == (trainer and of_sampled(trace, trainer["branches"][0]["entropies"]))
    assert (len(training), len(evaluation), bad) == (4, 1, [])
    assert sum(one.extra["trained"] for _, one in training) == len(of_ship) == 3


@pytest.mark.parametrize("named", ["run", "stream"])
def test_the_layout_of_one_file_has_the_same(tmp_path, named):
    folder = tmp_path / "monitors" / "file" / "traces"
    (folder / "annotations").mkdir(parents=True)
    for name in ("stream", "annotations/orch", "annotations/trainer"):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in records(TRACES / name)))
        (folder / f"{name}.index.jsonl").write_text('{"trace_id": 1}\n')
    assert read(tmp_path if named == "run" else folder / "stream.jsonl") == read(RUN)


def write_annotations(tmp_path, *rows):
    """Write the first episode, whose trace has a second branch, with these annotations; return what is read."""
    episode = records(TRACES / "stream")[0]
    [trace] = episode["traces"]
    trace["nodes"].append({"parent": 1, "message": {"role": "assistant", "content": "5!"}, "sampled": True,
                           "token_ids": [20, 21], "mask": [False, True], "logprobs": [-2.0]})  # fmt: skip
    folder = tmp_path / "traces"
    (folder / "annotations" / "orch").mkdir(parents=True)
    (folder / "stream.jsonl").write_text(json.dumps(episode) + "\n")
    lines = [json.dumps({"trace_id": trace["id"], **row}) + "\n" for row in rows]
    (folder / "annotations" / "orch" / "00000.jsonl").write_text("".join(lines))
    training, _, bad = read(tmp_path)
    return [one for _, one in training], bad


def test_the_newest_value_of_a_token_counts_and_each_branch_has_its_own(tmp_path):
    values = [0.25] * 13
    found, bad = write_annotations(
        tmp_path,
        {"branches": [{"index": 0, "entropies": values, "advantages": [1.0] * 13}], "info": {"effective": True}},
        {"branches": [{"index": 0, "entropies": [0.5] * 13}, {"index": 1, "entropies": [None] * 6 + [0.75]}]},
        {"branches": [{"index": 7, "entropies": values}]},
    )
    assert [one.entropies for one in found] == [[0.5] * 5, [0.75]]
    assert ([one.advantage for one in found], bad) == ([1.0, None], [])


@pytest.mark.parametrize("values", [[0.25] * 12, [0.25] * 6 + [None] * 7, []])
def test_a_stream_that_lacks_a_generated_token_is_not_shown(tmp_path, values):
    found, bad = write_annotations(tmp_path, {"branches": [{"index": 0, "entropies": values}]})
    assert ([one.entropies for one in found], bad) == ([None, None], [])


@pytest.mark.parametrize(
    "row", [{"branches": 3}, {"branches": [{"entropies": [1.0]}]}, {"trace_id": []}, {"info": [1]}]
)
def test_an_annotation_of_another_shape_is_a_bad_row(tmp_path, row):
    found, bad = write_annotations(tmp_path, row)
    assert (len(found), bad) == (2, ["00000.jsonl, line 1: expected an annotation of a trace."])


def test_values_of_tokens_have_a_bound_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_updates, "_MAX_VALUES", 13)
    rows = [{"branches": [{"index": index, "entropies": [0.5] * 13}]} for index in (0, 1)]
    found, bad = write_annotations(tmp_path, *rows)
    assert [one.entropies for one in found] == [[0.5] * 5, None]
    assert "those after them are not shown" in bad[0]
