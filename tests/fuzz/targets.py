"""What reads files, each with bytes to try: it answers, or refuses with a sentence; anything else is a crash."""

import atexit
import gzip
import io
import itertools
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hypothesis import strategies as st

from exgrpo.jobs.actions.archive import export_run, import_run
from exgrpo.jobs.actions.preflight.local_sources import refuse_remote_code
from exgrpo.jobs.actions.preflight.looks import check_context, look_at, read_chat_template
from exgrpo.jobs.evaluation.analysis.score_curves import read_score_curves
from exgrpo.jobs.evaluation.recorded_answers import FOLDER as ANSWERS_FOLDER
from exgrpo.jobs.evaluation.recorded_answers import AnswerLog, encode_line, find_answer_damage
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.runs.rollout_formats import verl_dumps
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource
from exgrpo.jobs.runs.state import describe_run
from exgrpo.jobs.specs.any_job import load_any_spec, parse_any_spec
from exgrpo.jobs.specs.train import ModelSpec, TrainSpec, load_spec
from exgrpo.jobs.training.data_rows import iterate_raw_rows
from exgrpo.jobs.training.engines.embedded.model import load_policy
from exgrpo.jobs.training.layouts import training_row
from exgrpo.jobs.training.pretrained.conversion import convert_gguf
from exgrpo.jobs.training.pretrained.model_shapes import model_shape
from exgrpo_core.bounded_json import parse_json, seal
from exgrpo_core.errors import EngineError, UserError
from exgrpo_core.experience_management.replay_buffer import BufferCorruptionError, ReplayBuffer
from exgrpo_core.recording.lines import read_tokens
from exgrpo_core.recording.record_file import pack
from tests.exgrpo_core.experience_management.buffers import empty_buffer, take_steps
from tests.faults.small_training import small_spec, train
from tests.fuzz.mutations import changed, changed_json, overwritten
from tests.jobs.training.chat_model import make_chat_model
from tests.jobs.training.pretrained.gguf_files import write_gguf
from tests.records import RECORD

FOLDER = Path(tempfile.mkdtemp(prefix="exgrpo-fuzz-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


@dataclass(frozen=True)
class Target:
    """Reads `content` as a file of its kind; `tried` makes contents."""

    read: Callable[[bytes], object]
    tried: Callable[[], st.SearchStrategy[bytes]]


@cache
def recorded_run():
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    run = RunDirectory.create(folder, small_spec(4, 2))
    train(run)
    return run


def _file(name, content):
    path = FOLDER / name
    path.write_bytes(content)
    return path


def _run_with(name, content):
    source = recorded_run()
    copy = FOLDER / "runs" / source.run_id
    shutil.rmtree(copy, ignore_errors=True)
    for path in source.path.rglob("*"):
        linked = copy / path.relative_to(source.path)
        if path.is_file() and linked.relative_to(copy).parts[0] not in ("buffer", "checkpoints"):
            linked.parent.mkdir(parents=True, exist_ok=True)
            linked.symlink_to(path)
    (copy / name).unlink(missing_ok=True)
    (copy / name).write_bytes(content)
    return RunDirectory(copy)


def _events_file():
    return (recorded_run().path / RECORD).read_bytes()


def _read_events(content):
    run = _run_with(RECORD, content)
    for _batch in EventReader(run).batches():
        pass


def _packed_events():
    lines = [json.loads(line) for line in gzip.decompress(_events_file()).splitlines()]
    changed_lines = changed_json(lines).map(lambda line: line + b"\n")
    return st.lists(st.lists(changed_lines, min_size=1, max_size=4).map(pack), min_size=1, max_size=3).map(b"".join)


def _packed_tokens():
    lines = [line for line in gzip.decompress(_events_file()).splitlines() if line.startswith(b'{"kind":"tokens"')]
    changed_lines = changed_json([json.loads(line) for line in lines]).map(lambda line: line + b"\n")
    return st.lists(changed_lines, min_size=1, max_size=4).map(pack)


def _read_tokens(content):
    for trajectory_id in range(3):
        with suppress(KeyError, UserError):
            read_tokens(_file("tokens", content), "0", trajectory_id)


def _read_description(content):
    for name in ("run.json", "spec.json", "attempts/0001/outcome.json"):
        describe_run(_run_with(name, content))


ANSWER_LINE = {
    "question_id": "a", "question": "1+1", "gold": "2", "seed": 1, "grader_version": "0123",
    "samples": [{"text": "2", "num_tokens": 1, "is_truncated": False}], "outcomes": [["correct", "wrong"]],
}  # fmt: skip


def _answers():
    whole = 2 * encode_line(ANSWER_LINE)
    forged = changed_json([{"seq": 1} | ANSWER_LINE]).map(lambda line: seal(line) + b"\n")
    return changed([whole]) | forged


def _read_answers(content):
    run = FOLDER / "evaluated"
    (run / ANSWERS_FOLDER).mkdir(parents=True, exist_ok=True)
    (run / ANSWERS_FOLDER / "amc-0001.jsonl").write_bytes(content)
    read_score_curves(run, "amc", "paper")
    find_answer_damage(run)
    AnswerLog(run, "amc", 2).read()


@cache
def _archives():
    whole = export_run(recorded_run(), Path(tempfile.mkdtemp(dir=FOLDER)) / "run.tar.gz").read_bytes()
    small = io.BytesIO()
    with tarfile.open(fileobj=small, mode="w") as archive:
        for name in ("spec.json", "run.json"):
            archive.add(recorded_run().path / name, f"{recorded_run().run_id}/{name}")
    return [small.getvalue(), gzip.decompress(whole)[:60_000]]


def _import(content):
    root = FOLDER / "imported"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for number, packed in enumerate((gzip.compress(content, 1), content)):
        with suppress(UserError):
            import_run(_file(f"run-{number}.tar.gz", packed), root)
    left = [path.name for path in root.iterdir() if path.name.startswith(".")]
    assert not left, f"left behind: {left}"


def _load_spec(content):
    for load, name in itertools.product((load_spec, load_any_spec), ("spec.yaml", "spec.json")):
        with suppress(UserError):
            load(_file(name, content))
    with suppress(UserError):
        parse_any_spec(parse_json(content), "fuzz")


def _specs():
    seed = small_spec().model_dump(mode="json")
    texts = [
        json.dumps(seed).encode(), b"extends: chains-exgrpo\nnum_steps: 3\n", b"name: one\ndata: {source: a.parquet}\n",
    ]  # fmt: skip
    return changed(texts) | changed_json(
        [seed, {"kind": "eval", "model": {}, "benchmarks": {}}, {"extends": "chains-exgrpo"}]
    )


DUMP_LINE = {"input": "1+1", "output": "2", "gts": "2", "score": 1.0, "step": 1, "uid": "a"}


def _read_dump(content):
    folder = FOLDER / "dump"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1.jsonl").write_bytes(content)
    list(verl_dumps.read(RolloutSource(folder)))


DATA_ROW = {
    "data_source": "math", "prompt": [{"role": "user", "content": "1+1"}], "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"}, "extra_info": {"index": 1},
}  # fmt: skip


def _read_rows(content):
    for name in ("rows.jsonl", "rows.jsonl.gz", "rows.parquet"):
        with suppress(UserError):
            for number, row in iterate_raw_rows(str(_file(name, content)), "train"):
                training_row(name, number, row, "auto")


def _rows():
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([DATA_ROW] * 3), parquet)
    line = json.dumps(DATA_ROW).encode() + b"\n"
    return changed([line, gzip.compress(line * 3), parquet.getvalue()]) | changed_json([DATA_ROW])


CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 51, "max_position_embeddings": 256,
    "eos_token": {"content": "x"}, "chat_template": "{{ messages }}", "auto_map": {"AutoModel": "code.py"},
}  # fmt: skip


@cache
def _model_files():
    folder = make_chat_model(Path(tempfile.mkdtemp(dir=FOLDER)))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _models():
    files = _model_files()
    configs = [CONFIG, *(json.loads(whole) for name, whole in files.items() if name.endswith(".json"))]
    names = files["model.safetensors"].index(b"}}") + 2
    return changed([*files.values()]) | changed_json(configs) | overwritten(files["model.safetensors"], names)


def _read_model_folder(content):
    folder = FOLDER / "model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer_config.json"):
        (folder / name).write_bytes(content)
    spec = TrainSpec(model=ModelSpec(source=str(folder)))
    for read in (model_shape, read_chat_template, partial(refuse_remote_code, "model.source")):
        with suppress(UserError):
            read(str(folder))
    with suppress(UserError):
        check_context(look_at(spec))
    (folder / "chat_template.jinja").write_bytes(content)
    with suppress(UserError):
        read_chat_template(str(folder))
    for name in _model_files():
        for other, whole in _model_files().items():
            (folder / other).write_bytes(content if other == name else whole)
        with suppress(EngineError):
            load_policy(str(folder), torch.device("cpu"))


@cache
def _gguf_file():
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    return write_gguf(make_chat_model(folder), folder / "whole.gguf").read_bytes()


def _gguf_files():
    end_of_names = _gguf_file().rindex(b"blk.") + 100
    return changed([_gguf_file()]) | overwritten(_gguf_file(), end_of_names)


def _convert_gguf(content):
    convert_gguf(_file("model.gguf", content), FOLDER / "converted")


@cache
def _buffer_files():
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    buffer = empty_buffer(folder / "segments")
    take_steps(buffer, np.random.default_rng(0), 1, 2)
    buffer.snapshot(folder / "segments" / "buffer.snapshot")
    return {path.name: path.read_bytes() for path in (folder / "segments").iterdir()}


def _restore_buffer(content):
    for kind in (".snapshot", ".rows", ".trajectories"):
        folder = FOLDER / "buffer"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, whole in _buffer_files().items():
            (folder / name).write_bytes(content if name.endswith(kind) else whole)
        with suppress(BufferCorruptionError, UserError):
            buffer = ReplayBuffer.restore(folder, folder / "buffer.snapshot")
            with suppress(BufferCorruptionError):
                buffer.experiences(np.arange(len(buffer.stored_rows())))
            buffer.close()


TARGETS: dict[str, Target] = {
    "events": Target(_read_events, lambda: changed([_events_file()]) | _packed_events()),
    "tokens": Target(_read_tokens, _packed_tokens),
    "run": Target(
        _read_description,
        lambda: (
            changed([(recorded_run().path / name).read_bytes() for name in ("run.json", "spec.json")])
            | changed_json([{"status": "failed", "reason": "x", "sizes": {"a": 3}}])
        ),
    ),
    "answers": Target(_read_answers, _answers),
    "archive": Target(_import, lambda: changed(_archives())),
    "specification": Target(_load_spec, _specs),
    "rollout-dump": Target(
        _read_dump, lambda: changed([json.dumps(DUMP_LINE).encode() + b"\n"]) | changed_json([DUMP_LINE])
    ),
    "data": Target(_read_rows, _rows),
    "model-folder": Target(_read_model_folder, _models),
    "gguf": Target(_convert_gguf, _gguf_files),
    "replay-buffer": Target(_restore_buffer, lambda: changed([*_buffer_files().values()])),
}
