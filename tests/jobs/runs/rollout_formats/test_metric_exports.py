import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from exgrpo.jobs.runs.rollout_formats.formats import UnknownRolloutsError, find_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource
from tests.jobs.runs.rollout_formats.test_published_writers import write

ROWS = [
    {"key": "loss", "value": 1.5, "timestamp": 7, "step": 0},
    {"key": "loss", "value": 0.5, "timestamp": 8, "step": 1},
]
LOSSES = {0: {"loss": 1.5}, 1: {"loss": 0.5}}


def read(path):
    source = RolloutSource(path)
    steps = {step.step: step.metrics for step in find_format(path).read(source)}
    return steps, source.bad.sentences


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("wandb.csv", b"\xef\xbb\xbf_step,loss\n0,1.5\n1,0.5\n"),
        ("chart.csv", b'\xef\xbb\xbf"Step","loss"\n"0","1.5"\n"1","0.5"\n'),
        ("semicolons.csv", "_step;loss\n0;1.5\n1;0.5\n"), ("tabs.csv", "_step\tloss\n0\t1.5\n1\t0.5\n"),
        ("pandas.csv", ",_step,loss\n0,0,1.5\n1,1,0.5\n"), ("percentages.csv", "step,loss\n0,150%\n1,50%\n"),
        ("one_line.json", json.dumps({"metrics": ROWS})), ("list.json", json.dumps(ROWS)),
        ("indented.json", json.dumps({"metrics": ROWS}, indent=1)),
        ("mark.jsonl", b'\xef\xbb\xbf{"_step":0,"loss":1.5}\n{"_step":1,"loss":0.5}\n'),
        ("decimals.parquet", pa.table({"_step": [0, 1], "loss": [Decimal("1.5"), Decimal("0.5")]})),
    ],
)  # fmt: skip
def test_each_way_of_writing_metrics_is_read(tmp_path, name, content):
    assert read(write(tmp_path, name, content)) == (LOSSES, [])


def test_a_line_of_an_old_mlflow_is_of_step_zero(tmp_path):
    (tmp_path / "metrics").mkdir()
    write(tmp_path / "metrics", "loss", "1795810596550 1.5 0\n1795810596736 0.5 1 data 5f\n")
    write(tmp_path / "metrics", "old", "1795810596550 2.5\n")
    source = RolloutSource(tmp_path)
    steps = [(step.step, step.metrics) for step in find_format(tmp_path).read(source)]
    assert steps == [(0, {"loss": 1.5}), (1, {"loss": 0.5}), (0, {"old": 2.5})]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"step":0,"loss":NaN,"train":{"kl":Infinity,"deep":{"lr":0.5}}}\n'),
        ("a.csv", "step,loss,train/kl,train/deep/lr\n0,NaN,inf,0.5\n"),
        ("a.json", '[{"_step":0,"loss":"NaN","train":{"kl":Infinity,"deep":{"lr":0.5}}}]'),
        ("a.parquet", pa.table({"step": [0], "loss": [math.nan], "train": [{"kl": math.inf, "deep": {"lr": 0.5}}]})),
    ],
)
def test_nested_metrics_and_those_that_are_not_finite_stay(tmp_path, name, content):
    steps, sentences = read(write(tmp_path, name, content))
    assert sentences == []
    assert steps == {0: {"loss": pytest.approx(math.nan, nan_ok=True), "train/kl": math.inf, "train/deep/lr": 0.5}}


def test_another_step_of_a_history_is_a_metric(tmp_path):
    path = write(tmp_path, "a.csv", "trainer/global_step,_step,loss\n50,0,1.5\n60,1,0.5\n")
    assert read(path)[0] == {0: {"trainer/global_step": 50, "loss": 1.5}, 1: {"trainer/global_step": 60, "loss": 0.5}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"step":0,"ok":true,"eval":{"ok":false}}\n'),
        ("a.csv", "step,ok,eval/ok\n0,True,False\n"),
        ("a.json", '[{"_step":0,"ok":true,"eval/ok":"FALSE"}]'),
        ("a.parquet", pa.table({"step": [0], "ok": [True], "eval/ok": [False]})),
        ("mlflow.json", '[{"key":"ok","value":true,"step":0},{"key":"eval/ok","value":false,"step":0}]'),
    ],
)
def test_true_and_false_are_one_and_zero_as_in_the_recorder(tmp_path, name, content):
    assert read(write(tmp_path, name, content)) == ({0: {"ok": 1.0, "eval/ok": 0.0}}, [])


MEDIA = '{"_step":0,"loss":1.5,"h":{"_type":"histogram","count":3}}\n'
TWICE = "two columns have this name; rename one of them."


@pytest.mark.parametrize(
    ("name", "content", "expected", "sentence"),
    [
        ("a.csv", "_step,loss,loss\n0,1,2\n", {}, f"a.csv: loss: {TWICE}"),
        ("a.csv", "Step,a - loss,b - loss,a - loss\n0,1,2,3\n", {}, f"a.csv: a - loss: {TWICE}"),
        ("a.csv", "_step,_step,loss\n0,1,2\n", {}, f"a.csv: _step: {TWICE}"),
        ("a.csv", "_step;acc;acc\n0;1;2\n", {}, f"a.csv: acc: {TWICE}"),
        ("a.parquet", pa.table([[0], [1.0], [2.0]], ["_step", "loss", "loss"]), {}, f"a.parquet: loss: {TWICE}"),
        ("a.csv", '_step,n,loss\n0,"1,234",1\n', {0: {"loss": 1}}, "n: expected a number such as 1234.5, got '1,234'."),
        ("a.csv", "_step;loss\n0;1,5\n", {}, "loss: expected a number such as 1234.5, got '1,5'."),
        ("a.csv", "_step,n,loss\n0,1 234,1\n", {0: {"loss": 1}}, "n: expected a number such as 1234.5, got '1 234'."),
        ("a.csv", "_step,loss\n0,1,5\n", {}, "expected 2 values, one a column; a number such as 1,5 needs quotes."),
        ("a.csv", "_step,note\n0,x\n", {}, "expected a number in one of its fields 'note'; this file has none."),
        ("a.csv", "_step,é\n0,1\n".encode("latin-1"), {}, "expected text in UTF-8, got another encoding at byte 6."),
        ("a.json", '{"_step": [0, 1], "loss": [1, 2]}', {}, "expected a list of JSON objects, each with a step."),
        (
            "media.jsonl", MEDIA + MEDIA.replace('0,"loss":1.5', '1,"loss":0.5'), LOSSES,
            "line 1: h: expected a number; a histo",
        ),
        ("media.json", f"[{MEDIA}]", {0: {"loss": 1.5}}, "h: expected a number; a histogram of W&B is not read."),
        ("a.json", json.dumps({"metrics": ROWS, "next_page_token": "x"}), LOSSES, "next_page_token: this is one page"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_by_its_field(tmp_path, name, content, expected, sentence):
    steps, sentences = read(write(tmp_path, name, content))
    assert steps == expected
    assert len(sentences) == 1
    assert sentence in sentences[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.json"])
def test_text_in_utf_16_is_refused_before_lines_of_it_are_read_by_chance(tmp_path, name, encoding):
    text = "_step,loss\n0,1.5\n" if name == "a.csv" else '{"_step":0,"loss":1.5}\n{"_step":1,"loss":0.5}\n'
    with pytest.raises(UnknownRolloutsError, match=rf"{name}: is text in UTF-16 or UTF-32; save it as UTF-8."):
        find_format(write(tmp_path, name, text.encode(encoding)))


@pytest.mark.parametrize("scale", [Decimal("1.00"), Decimal("1"), Decimal("1.0000000001")])
def test_a_decimal_of_trl_is_a_reward(tmp_path, scale):
    columns = {
        "step": [3, 3],
        "prompt": ["a", "b"],
        "completion": ["c", "d"],
        "advantage": [Decimal("0.5"), Decimal("-0.5")],
    }
    path = write(tmp_path, "completions_3.parquet", pa.table(columns | {"acc": [scale, scale / 2]}))
    [step] = find_format(path).read(RolloutSource(path))
    assert [(item.reward, item.advantage) for item in step.trajectories] == [
        (float(scale), 0.5),
        (float(scale / 2), -0.5),
    ]
    both = write(tmp_path, "completions_4.parquet", pa.table(columns | {"acc": [scale, scale / 2], "fmt": [1.0, 0.0]}))
    [step] = find_format(both).read(RolloutSource(both))
    assert [item.extra for item in step.trajectories] == [
        {"reward/acc": float(scale), "reward/fmt": 1.0}, {"reward/acc": float(scale / 2), "reward/fmt": 0.0},
    ]  # fmt: skip
