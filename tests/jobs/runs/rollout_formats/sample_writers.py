"""Writers of samples that `make_samples.py` starts, each in the environment of its package."""

import gzip
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

FULL_CHUNK = 2
"""Episodes of a file that is full."""


def write_stream(folder, episodes):
    """Write episodes as prime-rl's `FileMonitor` does since September 2026, with what it learned of them later.

    prime-rl is not published as a package. The records are of verifiers, the files are packed by pyzstd as in its
    `ChunkedJsonl`: a full file is packed, the last one is plain, and each producer of annotations has a folder.
    """
    traces = folder / "monitors" / "file" / "traces"
    _write_chunks(traces / "stream", [episode.to_record() for episode in episodes])
    shipped, trained = [], []
    for episode in episodes[:-2]:  # the last two are not trained on
        [trace] = episode.traces
        num_tokens = sum(len(node.token_ids) for node in trace.nodes)
        own = [is_own for node in trace.nodes for is_own in node.mask]
        advantage = trace.rewards["is_right"].score - 0.5
        info = {"effective": True, "ship": {"step": 4, "time": 1.0}, "advantage": advantage}
        of_ship = {"index": 0, "advantages": [advantage if is_own else 0.0 for is_own in own]}
        shipped.append({"version": 1, "trace_id": trace.id, "info": info, "branches": [of_ship]})
        entropies = [0.0625 * index if is_own else None for index, is_own in zip(range(num_tokens), own, strict=True)]
        of_trainer = {"index": 0, "trainer_logprobs": [None] * num_tokens, "entropies": entropies}
        trained.append({"version": 1, "trace_id": trace.id, "info": {}, "branches": [of_trainer]})
    _write_chunks(traces / "annotations" / "orch", shipped)
    _write_chunks(traces / "annotations" / "trainer", trained)


def _write_chunks(folder, records):
    import orjson
    import pyzstd

    folder.mkdir(parents=True)
    index = b""
    for number, start in enumerate(range(0, len(records), FULL_CHUNK)):
        lines = [orjson.dumps(record, default=str) + b"\n" for record in records[start : start + FULL_CHUNK]]
        index += b"".join(b'{"chunk":%d}\n' % number for _ in lines)
        file = folder / f"{number:05d}.jsonl"
        if start + FULL_CHUNK >= len(records):
            file.write_bytes(b"".join(lines))
        else:
            with pyzstd.SeekableZstdFile(
                f"{file}.zst", "wb", level_or_option=3, max_frame_content_size=1 << 10
            ) as opened:
                opened.write(b"".join(lines))
    (folder.parent / f"{folder.name}.index.jsonl").write_bytes(index)


def make_trackio(folder):
    """A project with two runs, its sessions, Parquet files and export for a static page; TRL writes one."""
    import os

    work = tempfile.mkdtemp()
    os.environ["TRACKIO_DIR"] = work  # Trackio reads it when it is imported
    import numpy as np
    import trackio
    from trackio.sqlite_storage import SQLiteStorage
    from trl.experimental.async_grpo.async_grpo_trainer import log_rollout_traces
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    def sample(number, reward):
        prompt = [{"role": "user", "content": f"What is {number} + 3?"}]
        completion = [{"role": "assistant", "content": str(number + 3 if reward else 0)}]
        metrics = {"reward": reward, "reward_std": 0.5, "rewards/is_right": reward}
        ids, mask = np.arange(9), np.array([0] * 5 + [1] * 4)
        return RolloutSample(prompt, completion, ids, mask, np.zeros(9), reward - 0.5, 7, number, metrics)

    trackio.init(project="sums", name="by TRL")
    for step in (1, 2):
        trackio.log({"loss": 0.5 / step}, step=step)
        log_rollout_traces([sample(step, 1.0), sample(step, 0.0)], step, ["trackio"])
    trackio.finish()
    trackio.init(project="sums", name="own loop")
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"first": 2}'}}
    messages = [
        {"role": "system", "content": "Use the tool."}, {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"}, {"role": "assistant", "content": "5"},
    ]  # fmt: skip
    trace = trackio.Trace(messages, {"reward": 0.75, "label": "easy", "rewards": {"is_right": 1.0, "is_short": 0.5}})
    trackio.log({"accuracy": 0.5, "sample": trace}, step=3)
    trackio.finish()
    (folder / "local").mkdir()
    (folder / "local" / "sums.db.gz").write_bytes(gzip.compress((Path(work) / "sums.db").read_bytes(), mtime=0))
    shutil.copytree(Path(work) / "traces", folder / "sessions")
    SQLiteStorage._dataset_import_attempted = True
    SQLiteStorage.export_to_parquet()
    (folder / "parquet").mkdir()
    for file in Path(work).glob("*.parquet"):
        shutil.copy(file, folder / "parquet")
    SQLiteStorage.export_for_static_space("sums", folder / "static")


def make_art(folder):
    import asyncio

    import art
    from openai.types.chat import ChatCompletionMessage
    from openai.types.chat.chat_completion import Choice

    def trajectory(question, text, reward, calls=None):
        own = [{"content": None, "tool_calls": calls}, {"content": text}] if calls else [{"content": text}]
        choices = [
            Choice(finish_reason="stop", index=0, message=ChatCompletionMessage(role="assistant", **message))
            for message in own
        ]
        result = [{"role": "tool", "tool_call_id": "c1", "content": "5"}] if calls else []
        messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": question}]
        metrics, metadata = {"is_short": 0.5, "num_turns": len(choices)}, {"answer": "5", "level": "easy"}
        turns = [*messages, *choices[:-1], *result, choices[-1]]
        return art.Trajectory(messages_and_choices=turns, reward=reward, metrics=metrics, metadata=metadata)

    async def log():
        model = art.Model(name="agent", project="sums", base_path=work, report_metrics=[])
        call = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"first": 2}'}}]
        for split, step in (("train", 1), ("train", 2), ("val", 2)):
            first = art.TrajectoryGroup(
                [trajectory("What is 2 + 3?", "5", 1.0, call), trajectory("What is 2 + 3?", "6", 0.0)]
            )
            second = art.TrajectoryGroup([trajectory("What is 7 - 4?", "3", 0.75)])
            await model.log([first, second] if split == "train" else [first], split=split, step=step)

    with tempfile.TemporaryDirectory() as work:
        asyncio.run(log())
        shutil.copytree(Path(work) / "sums" / "models" / "agent" / "trajectories", folder, dirs_exist_ok=True)


def make_skyrl(folder):
    """The files of an evaluation with two data sources. Only the function that writes them is taken from the package.

    The module around it needs Ray, torch and a GPU's packages.
    """
    import ast
    import importlib.util
    import json
    import logging
    from typing import Any

    [package] = importlib.util.find_spec("skyrl").submodule_search_locations
    tree = ast.parse((Path(package) / "train" / "utils" / "trainer_utils.py").read_text())
    names = {"dump_per_dataset_eval_results", "sanitize_data_source"}
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    known = {
        "json": json, "Path": Path, "logger": logging.getLogger(), "Any": Any, "Dict": dict, "List": list,
        "AutoTokenizer": Any, "GeneratorOutput": Any, "Optional": Any, "Union": Any,
    }  # fmt: skip
    exec(compile("from __future__ import annotations\n" + ast.unparse(tree), "skyrl", "exec"), known)

    class Tokenizer:
        def decode(self, ids):
            return bytes(ids).decode()

    texts = [("What is 2 + 3?", "It is 5."), ("What is 2 + 3?", "It is 6."), ("What is 7 - 4?", "It is 3, or")]
    outputs = {
        "prompt_token_ids": [[*prompt.encode()] for prompt, _ in texts],
        "response_ids": [[*response.encode()] for _, response in texts],
        "rewards": [1.0, 0.0, [0.0, 0.25, 0.5]], "stop_reasons": ["stop", "stop", "length"],
    }  # fmt: skip
    extras = [{"reward_spec": {"method": "rule", "ground_truth": answer}} for answer in ("5", "5", "3")]
    target = folder / "dumped_evals" / "global_step_10_evals"
    target.mkdir(parents=True)
    known["dump_per_dataset_eval_results"](
        target, Tokenizer(), outputs, ["sums/plain", "sums/plain", "minus"], ["sums"] * 3, extras, {"eval/all": 0.5}
    )


def make_mlflow_traces(folder):
    """Two traces with a model's call, feedback and an expectation, in a SQLite file and as lines."""
    import mlflow
    from mlflow.entities import SpanType

    @mlflow.trace(span_type=SpanType.CHAT_MODEL)
    def model(messages):
        text = "It is 5." if messages[-1]["role"] == "tool" else None
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"first": 2}'}}
        calls = {} if text else {"tool_calls": [call]}
        return {"choices": [{"message": {"role": "assistant", "content": text, **calls}}]}

    @mlflow.trace
    def rollout(question, step):
        mlflow.update_current_trace(tags={"step": str(step), "level": "easy"})
        messages = [{"role": "user", "content": question}]
        messages += [model(messages)["choices"][0]["message"], {"role": "tool", "tool_call_id": "c1", "content": "5"}]
        return model(messages)["choices"][0]["message"]["content"]

    with tempfile.TemporaryDirectory() as work:
        mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
        mlflow.set_experiment("sums")
        for step, (question, answer) in enumerate((("What is 2 + 3?", "5"), ("What is 7 - 4?", "3"))):
            rollout(question, step)
            mlflow.flush_trace_async_logging()
            trace = mlflow.get_last_active_trace_id()
            mlflow.log_feedback(trace_id=trace, name="reward", value=float(answer == "5"))
            mlflow.log_feedback(trace_id=trace, name="is_short", value=True)
            mlflow.log_expectation(trace_id=trace, name="expected_response", value=answer)
        found = mlflow.search_traces(return_type="list")
        (folder / "local").mkdir()
        _pack(Path(work) / "mlflow.db", folder / "local")
    (folder / "lines").mkdir()
    lines = "".join(trace.to_json() + "\n" for trace in found)
    (folder / "lines" / "traces.jsonl").write_text(lines.replace(f"{Path.cwd()}/", ""))


def make_verl(folder):  # noqa: C901 - what verl has for it, one after another
    """Rollouts that verl traces by Trackio and by MLflow, its metrics and its samples of validation by Trackio."""
    import asyncio
    import os

    work = tempfile.mkdtemp()
    os.environ["TRACKIO_DIR"] = work  # Trackio reads it when it is imported
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{work}/mlflow.db"
    import mlflow
    import trackio
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
    from verl.utils.rollout_trace import RolloutTraceConfig, rollout_trace_attr, rollout_trace_op
    from verl.utils.tracking import Tracking, ValidationGenerationsLogger

    class Tokenizer:
        def decode(self, ids):
            return bytes(ids).decode()

    class Client:
        tokenizer = Tokenizer()

        @rollout_trace_op
        async def generate(self, request_id, *, prompt_ids, sampling_params):  # noqa: ARG002 - it is recorded
            return {"token_ids": [*b"It is 5."]}

    class SingleTurnAgentLoop(AgentLoopBase):
        def __init__(self):
            self.tokenizer, self.client = Tokenizer(), Client()

        @rollout_trace_op
        async def run(self, sampling_params, priority=0, **kwargs):  # noqa: ARG002 - it is recorded
            prompt = [*kwargs["raw_prompt"][-1]["content"].encode()]
            ids = (await self.client.generate("r", prompt_ids=prompt, sampling_params=sampling_params))["token_ids"]
            mask, log_probs = [1] * len(ids), [-0.5] * len(ids)
            return AgentLoopOutput(
                prompt_ids=prompt, response_ids=ids, response_mask=mask, response_logprobs=log_probs, num_turns=2,
                metrics={},
            )  # fmt: skip

    async def roll_out(backend):
        track = Tracking("sums", "verl", ["trackio"], {}) if backend == "trackio" else None
        RolloutTraceConfig.init("sums", "verl", backend, token2text=True)
        for step, validate in ((1, False), (2, False), (2, True)):
            for index, (question, answer) in enumerate((("What is 2 + 3?", "5"), ("What is 7 - 4?", "3"))):
                facts = {"reward_model": {"ground_truth": answer, "style": "rule"}, "uid": f"u{index}"}
                prompt = [{"role": "user", "content": question}]
                for number in range(1 if validate else 2):
                    with rollout_trace_attr(index, step, number, "agent_loop", validate):
                        await SingleTurnAgentLoop().run({"temperature": 1.0}, raw_prompt=prompt, **facts)
            if track is not None and not validate:
                track.log({"critic/score/mean": 0.25 * step}, step)
        RolloutTraceConfig.reset()
        if track is not None:
            validated = [["2 + 2?", "4", 1.0], ["2 + 1?", "4", 0.0]]
            ValidationGenerationsLogger("sums", "verl").log(["trackio"], validated, 2)
            trackio.finish()

    asyncio.run(roll_out("trackio"))
    asyncio.run(roll_out("mlflow"))
    mlflow.flush_trace_async_logging()
    for name in ("sums", "mlflow"):
        _pack(Path(work) / f"{name}.db", folder)


def _pack(file, folder):
    """Store a SQLite file packed, without the name of the folder in which MLflow ran, which its texts have."""
    with closing(sqlite3.connect(file)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                short = f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, \'\') WHERE typeof("{column}") = ?'
                database.execute(short, (f"{Path.cwd()}/", "text"))
        database.commit()
        database.execute("VACUUM")
    (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
