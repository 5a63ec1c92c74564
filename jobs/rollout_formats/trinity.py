"""Trinity-RFT: the buffer of experiences in SQLite, or in JSON lines.

Source: `ExperienceModel`, `Experience.serialize` and `FileStorage` of Trinity-RFT 0.6.0. Of a table `NAME` the table
`NAME_blob` has the messages as a pickle, which is read as plain data, and then the tokens as safetensors.
"""

import io
import json
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory
from jobs.rollout_formats.plain_pickle import load_plain
from jobs.rollout_formats.source import PART_SIZE, RolloutSource, Row, Sample, extra_of, number_of
from jobs.rollout_formats.tokens import of_mask, only_value

_WAL_AT = 18
"""The byte of a database that is 2 where a `-wal` file belongs to it."""
_MAGIC = b"TRXP\x01"
_HEADER = struct.Struct("<QQ")
_TYPES = {"I32": "<i4", "I64": "<i8", "F32": "<f4", "F64": "<f8", "BOOL": "?"}
_OWN = ("prompt_text", "response_text", "messages", "reward", "eid", "truncate_status", "type", "prompt_length")


def recognises(sample: Sample) -> bool:
    """Whether it is SQLite with a table of experiences, or JSON lines with their ids."""
    is_database = sample.head.startswith(b"SQLite format 3\0")
    return {"eid", "prompt_length"} <= sample.fields or (
        is_database and b"experience_bytes" in sample.head and b"_blob" in sample.head
    )


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the experiences; the step is the explorer's batch where that is a number, else the model's version."""
    for file in source.files():
        is_lines = file.suffix in (".jsonl", ".json")
        try:
            rows = None if is_lines else partial(_database_rows, source)
            yield from source.rollouts([file], lambda row, _: [(_step(row), _trajectory(row))], rows)
        except sqlite3.DatabaseError as error:
            source.bad.add(file, 0, f"expected a whole database ({error}).")


def _database_rows(source: RolloutSource, file: Path) -> Iterator[tuple[int, Row]]:
    with file.open("rb") as opened:
        head = opened.read(_WAL_AT + 1)
    if not head.startswith(b"SQLite format 3"):
        return
    with TemporaryDirectory() as folder:
        place = file
        if head[_WAL_AT:] == b"\x02":  # even reading it would leave files beside it
            place = Path(shutil.copy(file, folder))
            with suppress(FileNotFoundError):
                shutil.copy(f"{file}-wal", folder)
        with closing(sqlite3.connect(f"{place.absolute().as_uri()}?mode=ro", uri=True)) as database:
            yield from _experiences(source, file, database)


def _experiences(source: RolloutSource, file: Path, database: sqlite3.Connection) -> Iterator[tuple[int, Row]]:
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    for (name,) in found:
        table = name.removesuffix("_blob").replace('"', '""')
        if not name.endswith("_blob"):
            continue
        place = file / name
        query = (
            f'SELECT id, experience_bytes, reward FROM "{table}_blob" JOIN "{table}" USING (id)'
            f" WHERE id > ? ORDER BY id LIMIT {PART_SIZE}"
        )
        # All of a part at once: a query that is still open would lock the trainer out.
        while rows := database.execute(query, (source.position(place),)).fetchall():
            for number, content, reward in rows:
                source.advance(place, number)
                try:
                    yield number, {**_decoded(content), "reward": reward}
                except (ValueError, TypeError, AttributeError, LookupError, struct.error) as error:
                    source.bad.add(file, number, f"expected an experience of Trinity-RFT 0.6 ({error}).")


def _decoded(content: bytes) -> Row:
    if not content.startswith(_MAGIC):
        raise ValueError("it has another beginning")
    start = len(_MAGIC) + _HEADER.size
    length, _ = _HEADER.unpack_from(content, len(_MAGIC))
    item: Row = load_plain(io.BytesIO(content[start : start + length]))["items"][0]  # type: ignore[index]
    return item | {"tensors": _tensors(content[start + length :])}


def _tensors(content: bytes) -> dict[str, list[Any]]:
    """Return the tensors of safetensors by their names."""
    (length,) = struct.unpack_from("<Q", content)
    found = {}
    for name, about in json.loads(content[8 : 8 + length]).items():
        if about.get("dtype") in _TYPES:
            begin, end = about["data_offsets"]
            values = np.frombuffer(content[8 + length + begin : 8 + length + end], _TYPES[about["dtype"]])
            found[name.partition(":")[2]] = values.tolist()
    return found


def _step(row: Row) -> int:
    for value in ((row.get("eid") or {}).get("batch"), (row.get("info") or {}).get("model_version")):
        if str(value).isdecimal():
            return int(str(value))
    return 0


def _trajectory(row: Row) -> RecordedTrajectory:
    turns = row.get("messages")
    eid, tensors = row.get("eid") or {}, row.get("tensors") or {}
    mask = tensors.get("action_mask")
    tokens = of_mask(tensors.get("tokens", [])[row["prompt_length"] :], mask)
    status = row.get("truncate_status")
    single = () if turns else messages_of(row, "prompt_text") + messages_of(row, "response_text", "assistant")
    return RecordedTrajectory(
        messages=messages_of(row, "messages") if turns else single,
        reward=number_of(row, "reward"),
        group=f"{eid.get('batch')}/{eid.get('task')}" if eid.get("task") not in (None, "") else None,
        is_truncated=status == "response_truncated" if status else None,
        num_tokens=len(tokens) if tokens else None,
        token_ids=tokens,
        log_probs=of_mask(tensors.get("logprobs"), mask),
        advantage=only_value(of_mask(tensors.get("advantages"), mask)),
        extra=extra_of(row.get("info") or {}, ()) | extra_of(row.get("metrics") or {}, ()) | {"run": eid.get("run")},
    )
