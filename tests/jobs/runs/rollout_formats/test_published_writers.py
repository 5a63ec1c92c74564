"""Files as the code of projects writes them whose packages do not install here, and rows that are bad."""

import json
import pickle
import shutil
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo.jobs.runs.rollout_formats import torch_dumps
from exgrpo.jobs.runs.rollout_formats.formats import FORMATS, find_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample, SourceChangedError
from exgrpo_core.recording.rows import Message
from tests.jobs.runs.rollout_formats.test_real_samples import PATHS, SAMPLES, module_of, read

SLIME = {
    "group_index": 3, "index": 6, "prompt": [{"role": "user", "content": "2 + 3?"}], "tokens": [1, 2, 5, 6],
    "response": "5", "response_length": 2, "label": "5", "reward": 1.0, "loss_mask": None,
    "rollout_log_probs": [-0.5, -0.25],
    "status": "completed", "metadata": {}, "train_metadata": None,
}  # fmt: skip
"""`Sample.to_dict` of slime 0.2 (`slime/utils/types.py`)."""
NEMO = {
    "content": ["2 + 3?", "call", "5 it is", "5"], "rewards": 1.0, "input_lengths": 6,
    "token_ids": [1, 2, 3, 4, 5, 6, 0, 0], "token_loss_mask": [0, 1, 1, 0, 1, 1, 0, 0],
    "sample_loss_mask": 1.0, "advantages": [0.5] * 8, "idx": 0,
    "generation_logprobs": [0.0, -1.0, -2.0, 0.0, -3.0, -4.0, 0.0, 0.0], "prev_logprobs": [0.0] * 8,
}  # fmt: skip
"""`log_data` of `grpo_train` by `Logger.log_batched_dict_as_jsonl` (NeMo-RL: `nemo_rl/algorithms/grpo.py`)."""
NEMO_VALIDATION = {
    "content": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}],
    "rewards": 0.0,
    "idx": 0,
}
OPENRLHF = {"input": "2 + 3?", "output": "5", "reward": 0.75}
"""`batch_rm_inference` of OpenRLHF (`openrlhf/cli/batch_inference.py`)."""
SWIFT_TABLE = {
    "step": ["4", "4"], "prompt": ["<|im_start|>user\n2 + 3?", "3?"], "completion": ["5", "6"], "Accuracy": [1.0, 0.0],
    "advantages": [0.5, -0.5], "solution": ["5", "3"],
}  # fmt: skip
"""`GRPOTrainer.log` and `JsonlWriter` of ms-swift 4.6 (`swift/rlhf_trainers/grpo_trainer.py`)."""
SWIFT_RAY = {"gen_step": 4, "prompt": "2 + 3?", "completion": "5", "reward": 1.0}
"""`BaseTrainer._maybe_log_completions` of ms-swift 4.6 (`swift/ray/megatron/base_trainer.py`)."""
MILES = {
    "sample_index": 6, "group_index": 3, "status": "truncated", "reward": None, "prompt": "2 + 3?",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "2 + 3?"},
                                     {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "assistant", "content": None, "reasoning_content": "A sum.",
         "tool_calls": [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "no", "status": "error"},
    ],
}  # fmt: skip
"""`trajectory_rows` of Miles (`miles/ray/rollout/debug_data.py`)."""
MESSAGES = {
    "messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}],
    "score": 1,
    "label": "2",
}
WANDB_CHART = (
    '"Step","run-1 - loss","run-1 - loss__MIN","run-1 - loss__MAX"\n0,1.5,1.5,1.5\n2,,,\n3,NaN,1,1\n4,0.5,0.5,0.5\n'
)
"""A chart's export, by W&B's documentation."""
WANDB_HISTORY = [{"_step": 0, "_runtime": 1.5, "loss": 1.5, "note": "x"}, {"_step": 1, "loss": None}]
MLFLOW_STORE = "1795810596550 1.5 0\n1795810596736 0.5 1\n"
FILES = {
    "7.pt": ("torch_dumps", {"rollout_id": 7, "samples": [SLIME]}), "train_data_step2.jsonl": ("nemo_rl", [NEMO]),
    "val_data_step2.jsonl": ("nemo_rl", [NEMO_VALIDATION]),
    "3.jsonl": ("verl_dumps", [{"input": "2?", "output": "2", "gts": "2", "score": 1.0, "step": 3}]),
    "openrlhf.jsonl": ("json_lines", [OPENRLHF]), "completions.jsonl": ("json_lines", [SWIFT_TABLE]),
    "ray/completions.jsonl": ("json_lines", [SWIFT_RAY]), "5.jsonl": ("json_lines", [MILES]),
    "chats.jsonl": ("json_lines", [MESSAGES]), "chart.csv": ("metric_exports", WANDB_CHART),
    "history.json": ("metric_exports", json.dumps(WANDB_HISTORY)), "history.jsonl": ("metric_exports", WANDB_HISTORY),
    "metrics/reward/mean": ("metric_exports", MLFLOW_STORE),
}  # fmt: skip


def write(folder, name, content):
    """Write a file of `FILES` and return the path to open: of a file store the run's folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".pt"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(content, 2))
    elif isinstance(content, pa.Table):
        pq.write_table(content, path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content))
    return folder if name.startswith("metrics/") else path


def only(folder, name):
    [step] = read(write(folder, name, FILES[name][1]))
    return step.step, step.trajectories


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_recognised_by_its_own_format_alone(tmp_path, name):
    module, content = FILES[name]
    sample = Sample(write(tmp_path, name, content))
    assert [module_of(entry) for entry in FORMATS if entry.recognises(sample)] == [module]


def test_slime_is_read_without_torch(tmp_path):
    step, [sample] = only(tmp_path, "7.pt")
    assert (step, sample.group, sample.reward, sample.answer, sample.is_truncated) == (7, "3", 1.0, "5", False)
    assert (sample.token_ids, sample.log_probs, sample.num_tokens) == ([5, 6], [-0.5, -0.25], 2)


def test_tokens_without_a_finite_number_each_have_none(tmp_path):
    samples = [SLIME | {"rollout_log_probs": values} for values in ([-0.5, None], [-0.5, float("nan")], [-0.5])]
    [step] = read(
        write(tmp_path, "7.pt", {"rollout_id": 7, "samples": [entry | {"loss_mask": [1, 1]} for entry in samples]})
    )
    assert [(sample.log_probs, sample.token_ids) for sample in step.trajectories] == [(None, [5, 6])] * 3


def test_nemo_rl_marks_the_turns_that_its_mask_counts(tmp_path):
    step, [trained] = only(tmp_path, "train_data_step2.jsonl")
    assert (step, trained.reward, trained.advantage, trained.num_tokens) == (2, 1.0, 0.5, 4)
    assert [(part.role, part.is_generated) for part in trained.messages] == [("user", False), ("assistant", True)] * 2
    assert (trained.token_ids, trained.log_probs) == ([2, 3, 5, 6], [-1.0, -2.0, -3.0, -4.0])
    _, [validated] = only(tmp_path, "val_data_step2.jsonl")
    assert (validated.messages[1].is_generated, validated.num_tokens, validated.extra["kind"]) == (
        True,
        None,
        "validation",
    )
    observed = NEMO | {"content": ["2 + 3?", "call", "5 it is"], "token_loss_mask": [0, 1, 1, 0, 0, 0, 0, 0]}
    [step] = read(write(tmp_path / "ended", "train_data_step3.jsonl", [observed]))
    assert [part.is_generated for part in step.trajectories[0].messages] == [False, True, False]


def test_json_lines_differ_in_names_alone(tmp_path):
    step, [judged] = only(tmp_path, "openrlhf.jsonl")
    assert (step, judged.reward, judged.messages[1]) == (0, 0.75, Message("assistant", "5", is_generated=True))
    step, [first, second] = only(tmp_path, "completions.jsonl")
    assert (step, first.reward, first.extra["Accuracy"], second.advantage) == (4, 1.0, 1.0, -0.5)
    step, [row] = only(tmp_path, "ray/completions.jsonl")
    assert (step, row.reward, row.messages[0].text) == (4, 1.0, "2 + 3?")
    step, [chat] = only(tmp_path, "chats.jsonl")
    assert (step, chat.reward, chat.answer, chat.verdict, chat.messages[1].is_generated) == (0, 1.0, "2", None, True)


def test_miles_conversations_have_tools_images_and_errors(tmp_path):
    step, [sample] = only(tmp_path, "5.jsonl")
    assert (step, sample.group, sample.is_truncated, sample.reward) == (5, "3", True, None)
    assert [(part.kind, part.text, part.tool, part.is_error) for part in sample.messages] == [
        ("text", "2 + 3?", "", False), ("image", "[image 4634d5dc]", "", False), ("thinking", "A sum.", "", False),
        ("tool_call", "{}", "add", False), ("tool_result", "no", "add", True),
    ]  # fmt: skip


def test_metrics_are_numbers_of_a_step(tmp_path):
    steps = read(write(tmp_path, "chart.csv", WANDB_CHART))
    losses = {0: 1.5, 3: pytest.approx(float("nan"), nan_ok=True), 4: 0.5}
    assert {step.step: step.metrics for step in steps} == {
        step: {"run-1 - loss": loss} for step, loss in losses.items()
    }
    [step] = read(write(tmp_path, "history.jsonl", WANDB_HISTORY))
    assert (step.step, step.metrics) == (0, {"_runtime": 1.5, "loss": 1.5})


BAD = {
    "traces/verifiers": [{"traces": [{"nodes": [{"message": 1}]}], "task": {}}, {"traces": 3}, {"traces": [{"nodes": [
        {"parent": 0, "message": {"role": "user", "content": ""}}]}]}],
    "verifiers_results": [{"prompt": "a", "completion": 3}, {"prompt": "a", "completion": "b", "reward": float("nan")}],
    "lm_eval": [{"arguments": {}, "resps": []}, {"arguments": 1}],
    "train_data_step2.jsonl": [NEMO | {"rewards": "high"}, NEMO | {"content": 3}],
    "completions.jsonl": [SWIFT_TABLE | {"prompt": []}, SWIFT_TABLE | {"step": ["x", "x"]}, {"other": 1}],
    "chats.jsonl": [{"messages": [{"role": "nobody"}]}, {"messages": "text"}],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_counted_by_file_and_line_and_a_torn_last_line_waits(tmp_path, name):
    if name in PATHS:
        given = SAMPLES / name
        path = shutil.copytree(given, tmp_path / "copy") if given.is_dir() else Path(shutil.copy(given, tmp_path))
    else:
        path = write(tmp_path, name, FILES[name][1])
    file = next(file for file in [*path.rglob("*.jsonl"), path] if file.is_file())
    num_good = sum(len(step.trajectories) for step in read(path))
    num_lines = file.read_text().count("\n")
    with file.open("a") as opened:
        opened.write("[1]\n" + "".join(json.dumps(row) + "\n" for row in BAD[name]) + '{"torn": "')
    source = RolloutSource(path)
    steps = list(find_format(path).read(source))
    assert sum(len(step.trajectories) for step in steps) == num_good
    lines = range(num_lines + 1, num_lines + 2 + len(BAD[name]))
    assert [sentence.partition(":")[0] for sentence in source.bad.sentences] == [
        f"{file.name}, line {line}" for line in lines
    ]


def test_a_dump_that_is_not_whole_waits_and_one_of_something_else_is_bad(tmp_path):
    path = write(tmp_path, "7.pt", {"rollout_id": 7, "samples": [SLIME, {}, SLIME | {"prompt": 3}]})
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    source = RolloutSource(tmp_path)
    assert (list(torch_dumps.read(source)), source.bad.num) == ([], 0)
    path.write_bytes(whole)
    [step] = torch_dumps.read(source)
    assert (len(step.trajectories), source.bad.num) == (1, 2)
    write(tmp_path, "8.pt", {"rollout_id": 8})
    assert (list(torch_dumps.read(source)), source.bad.num) == ([], 3)
    write(tmp_path, "7.pt", {"rollout_id": 7, "samples": []})
    with pytest.raises(SourceChangedError):
        list(torch_dumps.read(source))


@pytest.mark.parametrize("step", ["-1", "2.5", "x"])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "json"])
def test_a_row_of_metrics_without_a_step_is_named(tmp_path, step, ending):
    rows = [{"_step": "1", "loss": "0.5"}, {"_step": step, "loss": "0.25"}, {"_step": "3.0", "loss": "0.125"}]
    texts = {
        "csv": "_step,loss\n" + "".join(f"{row['_step']},{row['loss']}\n" for row in rows),
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "json": json.dumps(rows),
    }
    source = RolloutSource(write(tmp_path, f"history.{ending}", texts[ending]))
    steps = [(found.step, found.metrics) for found in find_format(source.path).read(source)]
    assert steps == [(1, {"loss": 0.5}), (3, {"loss": 0.125})]
    [sentence] = source.bad.sentences
    assert sentence.startswith(f"history.{ending}, line {3 if ending == 'csv' else 2}: step: expected a whole number")
