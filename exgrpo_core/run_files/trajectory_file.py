"""The Parquet files of a run: trajectories of one or several steps, and one file a question set.

A file of trajectories holds fresh ones and, marked `is_replayed`, the replayed ones. Fresh rows keep token ids (int32),
entropies (float16) and log-probs (float32) where the retention setting says so. Replayed rows keep all per-token values
under the policy that chose them, and log-probs of the policy that generated them.

Where rollouts were generated ahead, fresh rows have the latter too, and a column of policy versions. A reward of parts
has a column of each, `reward/NAME`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exgrpo_core.bounded_json import UnreadableFileError, parse_json
from exgrpo_core.durable_files import write_whole
from exgrpo_core.types import PART_PREFIX, Experience, Int64Array, Question, Replay, RolloutGroup, Trajectory

FILE_PREFIX = "step-"
"""Beginning of the name of a file of trajectories; its first step follows."""

KeepsTokens = Callable[[Trajectory], bool]
"""Whether a fresh trajectory's per-token values are kept."""

_FRESH_COLUMNS = (
    "trajectory_id", "question_index", "group_position", "group_slot", "reward", "verdict", "is_valid", "has_code",
    "is_truncated", "num_tokens", "mean_entropy", "mean_log_prob", "advantage", "text",
)  # fmt: skip
_REPLAY_COLUMNS = (
    "group_position", "question_index", "trajectory_id", "rollout_step", "is_external", "reward", "advantage",
    "num_tokens", "mean_entropy", "mean_log_prob", "mean_ratio", "max_ratio",
)  # fmt: skip
_COLUMNS = (
    "is_replayed", "trajectory_id", "question_index", "step", "group_position", "group_slot", "rollout_step", "reward",
    "verdict", "is_valid", "has_code", "is_truncated", "num_tokens", "mean_entropy", "mean_log_prob", "advantage",
    "text", "is_external", "mean_ratio", "max_ratio", "token_ids", "entropies", "log_probs", "behavior_log_probs",
)  # fmt: skip
"""The order of columns in a file."""
VERSION_COLUMN = "policy_version"
"""Steps done by the policy that wrote a fresh row; only in files that hold rollouts generated ahead."""
TOKEN_COLUMNS = {
    "token_ids": pa.uint32(),
    "entropies": pa.float32(),
    "log_probs": pa.float32(),
    "behavior_log_probs": pa.float32(),
}


@dataclass(frozen=True, slots=True)
class _Rows:
    """The N + M rows of a table: N fresh trajectories, then M replayed ones."""

    groups: list[RolloutGroup]
    fresh: list[Trajectory]
    replayed: list[Replay]
    group_of: Int64Array
    """Index in `groups` of each row, (N + M,)."""
    slot_of: Int64Array
    """Position of each row within its group, (N + M,); replayed ones come last."""

    @property
    def stored(self) -> list[Experience]:
        """The M replayed rows as stored in the buffer."""
        return [replay.experience for replay in self.replayed]

    @property
    def either(self) -> list[Trajectory | Experience]:
        return [*self.fresh, *self.stored]

    def of_fresh(self, values: Iterable[Any]) -> list[Any]:
        return [*values, *[None] * len(self.replayed)]

    def of_replayed(self, values: Iterable[Any]) -> list[Any]:
        return [*[None] * len(self.fresh), *values]


def trajectory_table(steps: Sequence[tuple[int, Sequence[RolloutGroup]]], keeps_tokens: KeepsTokens) -> pa.Table:
    """Return one row a fresh trajectory, in order of steps and groups, and then one row a replayed one."""
    rows = _collect_rows([group for _, groups in steps for group in groups])
    step_of = np.array([step for step, groups in steps for _ in groups], dtype=np.int32)
    position_of = np.array([position for _, groups in steps for position in range(len(groups))], dtype=np.int32)
    positions = {
        "step": step_of[rows.group_of],
        "group_position": position_of[rows.group_of],
        "group_slot": rows.slot_of.astype(np.int32),
        "advantage": _advantages(rows.groups)[rows.group_of, rows.slot_of],
    }
    columns = positions | _columns_of_either(rows) | _columns_of_one_kind(rows) | _token_columns(rows, keeps_tokens)
    table = pa.table({name: columns[name] for name in _COLUMNS})
    for name in dict.fromkeys(name for item in rows.fresh for name in item.reward_parts):
        parts = pa.array(rows.of_fresh(item.reward_parts.get(name) for item in rows.fresh), pa.float32())
        table = table.append_column(f"{PART_PREFIX}{name}", parts)
    if not any(item.is_ahead for item in rows.fresh):
        return table
    versions = rows.of_fresh(item.policy_version for item in rows.fresh)
    return table.append_column(VERSION_COLUMN, pa.array(versions, pa.int32()))


def _collect_rows(groups: list[RolloutGroup]) -> _Rows:
    num_fresh = np.array([len(group.trajectories) for group in groups])
    fresh_groups = np.repeat(np.arange(len(groups)), num_fresh)
    fresh = [trajectory for group in groups for trajectory in group.trajectories]
    fresh_slots = np.arange(len(fresh)) - (np.cumsum(num_fresh) - num_fresh)[fresh_groups]
    num_replays = np.array([len(group.replays) for group in groups], dtype=np.int64)
    replay_groups = np.repeat(np.arange(len(groups)), num_replays)
    replay_places = np.arange(replay_groups.size) - (np.cumsum(num_replays) - num_replays)[replay_groups]
    return _Rows(
        groups,
        fresh,
        [replay for group in groups for replay in group.replays],
        np.append(fresh_groups, replay_groups),
        np.append(fresh_slots, num_fresh[replay_groups] + replay_places),
    )


def _columns_of_either(rows: _Rows) -> dict[str, Any]:
    """Return what fresh and replayed rows both have, scores of replayed ones under the policy that chose them."""
    either = rows.either
    entropies = [*(item.entropies for item in rows.fresh), *(replay.entropies for replay in rows.replayed)]
    log_probs = [*(item.log_probs for item in rows.fresh), *(replay.old_log_probs for replay in rows.replayed)]
    return {
        "is_replayed": pa.array([False] * len(rows.fresh) + [True] * len(rows.replayed), pa.bool_()),
        "trajectory_id": pa.array([item.trajectory_id for item in either], pa.int64()),
        "question_index": pa.array([item.question_index for item in either], pa.int32()),
        "rollout_step": pa.array([item.rollout_step for item in either], pa.int32()),
        "reward": pa.array([item.reward for item in either], pa.float32()),
        "num_tokens": pa.array([item.token_ids.size for item in either], pa.int32()),
        "mean_entropy": _mean_of_each(entropies),
        "mean_log_prob": _mean_of_each(log_probs),
    }


def _columns_of_one_kind(rows: _Rows) -> dict[str, Any]:
    """Return what only fresh rows have, and the importance ratios of replayed ones."""
    fresh = rows.fresh
    ratios = [np.exp(replay.old_log_probs - replay.experience.behavior_log_probs) for replay in rows.replayed]
    return {
        "verdict": pa.array(rows.of_fresh(item.verdict for item in fresh), pa.string()),
        "is_valid": pa.array(rows.of_fresh(item.is_valid for item in fresh), pa.bool_()),
        "has_code": pa.array(rows.of_fresh(item.has_code for item in fresh), pa.bool_()),
        "is_truncated": pa.array(rows.of_fresh(item.is_truncated for item in fresh), pa.bool_()),
        "text": _text_column(rows.of_fresh(item.text for item in fresh)),
        "is_external": pa.array(rows.of_replayed(replay.is_external for replay in rows.replayed), pa.bool_()),
        "mean_ratio": pa.array(rows.of_replayed(_mean_of_each(ratios).tolist()), pa.float32()),
        "max_ratio": pa.array(rows.of_replayed(float(ratio.max(initial=0.0)) for ratio in ratios), pa.float32()),
    }


def _token_columns(rows: _Rows, keeps_tokens: KeepsTokens) -> dict[str, Any]:
    """Return per-token values: of fresh rows where they are kept, of replayed ones always."""
    kept = [item if keeps_tokens(item) else None for item in rows.fresh]
    token_ids = [None if item is None else item.token_ids for item in kept]
    entropies = [None if item is None else item.entropies for item in kept]
    log_probs = [None if item is None else item.log_probs for item in kept]
    behavior = [item.sampler_log_probs if item is not None and item.is_ahead else None for item in kept]
    return {
        "token_ids": _list_column(token_ids + [item.token_ids for item in rows.stored], np.int32),
        "entropies": _list_column(entropies + [replay.entropies for replay in rows.replayed], np.float16),
        "log_probs": _list_column(log_probs + [replay.old_log_probs for replay in rows.replayed], np.float32),
        "behavior_log_probs": _list_column(behavior + [item.behavior_log_probs for item in rows.stored], np.float32),
    }


def write_parquet(table: pa.Table, path: Path) -> int:
    """Write a table and return the CRC-32 of its file, which appears whole, with its content on disk.

    Its name is on disk once the event that follows is: a journaling file system writes both in order. A sync of the
    folder would double the time that a step waits for the disk.
    """
    sink = pa.BufferOutputStream()
    options = {"compression": "zstd", "use_dictionary": ["verdict"], "write_statistics": False}
    pq.write_table(table, sink, write_page_checksum=True, **options)
    content = memoryview(sink.getvalue())
    write_whole(path, content, syncs_folder=False)
    return crc32(content)


def read_trajectories(path: Path, columns: Sequence[str] = (), step: int | None = None) -> pa.Table:
    """Return these columns, by default all but per-token values, of all rows or of those of a step.

    Raises:
        UnreadableFileError: The file is missing or damaged.
    """
    wanted = list(columns) or [name for name in _COLUMNS if name not in TOKEN_COLUMNS]
    with _readable(path):
        if not columns:
            wanted += filter(_is_extra, pq.read_schema(path).names)
        return pq.read_table(path, columns=wanted, filters=None if step is None else [("step", "=", step)])


def list_steps(path: Path) -> list[int]:
    """Return the steps whose trajectories a file holds, in order.

    Raises:
        UnreadableFileError: The file is missing or damaged.
    """
    with _readable(path):
        return sorted(pc.unique(pq.read_table(path, columns=["step"])["step"]).to_pylist())


def rows_of_step(table: pa.Table, step: int) -> dict[str, list[dict[str, Any]]]:
    """Return the `trajectories` and `replays` of a step."""
    rows = table.filter(pc.field("step") == step).to_pylist()
    fresh = [{name: row[name] for name in _FRESH_COLUMNS} | _extra(row) for row in rows if not row["is_replayed"]]
    replays = [{name: row[name] for name in _REPLAY_COLUMNS} for row in rows if row["is_replayed"]]
    return {"trajectories": fresh, "replays": replays}


def _extra(row: dict[str, Any]) -> dict[str, Any]:
    extra = {name: value for name, value in row.items() if _is_extra(name)}
    return {"extra": extra} if extra else {}


def _is_extra(name: str) -> bool:
    return name == VERSION_COLUMN or name.startswith(PART_PREFIX)


def read_token_data(path: Path, trajectory_id: int, replayed_in: int | None = None) -> dict[str, list[float] | None]:
    """Return a trajectory's per-token values as generated, or as replayed in a step; None for those that were not kept.

    Raises:
        KeyError: The file holds no such trajectory.
        UnreadableFileError: The file is missing or damaged.
    """
    filters: list[tuple[str, str, object]] = [("trajectory_id", "=", trajectory_id)]
    filters.append(("is_replayed", "=", replayed_in is not None))
    if replayed_in is not None:
        filters.append(("step", "=", replayed_in))
    with _readable(path):
        table = pq.read_table(path, columns=list(TOKEN_COLUMNS), filters=filters, page_checksum_verification=True)[:1]
        values = {name: _token_values(table[name], kind) for name, kind in TOKEN_COLUMNS.items()}
        if len({len(of_tokens) for of_tokens in values.values() if of_tokens is not None}) > 1:
            raise ValueError(f"trajectory {trajectory_id} has columns of different numbers of tokens")
    if not table:
        raise KeyError(f"{path}: holds no trajectory {trajectory_id}.")
    return values


def _token_values(column: pa.ChunkedArray, kind: pa.DataType) -> list[float] | None:
    """Return the per-token values of the only row of a column, which in an imported run may be of any type."""
    lists = column.cast(pa.list_(kind))
    if pc.list_flatten(lists).null_count:
        raise ValueError("a token without a value")
    return next(iter(lists.to_pylist()), None)


def questions_table(questions: Sequence[Question]) -> pa.Table:
    """Return one row a question."""
    return pa.table(
        {
            "question_index": pa.array([question.index for question in questions], pa.int32()),
            "question_id": pa.array([question.question_id for question in questions], pa.string()),
            "prompt_text": _text_column([question.prompt_text for question in questions]),
            "answer": _text_column([question.answer for question in questions]),
            "details": pa.array([json.dumps(dict(question.metadata), default=str) for question in questions]),
        }
    )


def read_questions(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the `questions` of a file, with their details as mappings.

    Raises:
        UnreadableFileError: The file is missing or damaged.
    """
    with _readable(path):
        rows = pq.read_table(path).to_pylist()
        return {"questions": [row | {"details": _details(row.get("details"))} for row in rows]}


def _details(text: object) -> dict[str, Any]:
    with suppress(UnreadableFileError):
        details = parse_json(text) if isinstance(text, str) else None
        if isinstance(details, dict) and isinstance(details.get("question", ""), str):
            return details
    raise ValueError("details of a question: expected JSON fields, of which `question` is a text")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except UnreadableFileError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise UnreadableFileError(f"{path}: cannot be read ({why}); use another copy of the run.") from error


def _advantages(groups: Sequence[RolloutGroup]) -> NDArray[np.float32]:
    """Return the advantage of each slot of each group, NaN where there is none."""
    num_slots = max(group.num_trajectories for group in groups)
    advantages = np.full((len(groups), num_slots), np.nan, dtype=np.float32)
    for index, group in enumerate(groups):
        if group.advantages is not None:
            advantages[index, : len(group.advantages)] = group.advantages
    return advantages


def _mean_of_each(arrays: Sequence[NDArray[Any] | None]) -> NDArray[np.float32]:
    """Return the mean of each array as float32; NaN where there is none, or an empty one."""
    means = np.full(len(arrays), np.nan, dtype=np.float32)
    sizes = _sizes(arrays)
    lengths = sizes[sizes > 0]
    if lengths.size:
        values = np.concatenate([array for array in arrays if array is not None])
        means[sizes > 0] = np.add.reduceat(values, np.cumsum(lengths) - lengths, dtype=np.float64) / lengths
    return means


def _list_column(arrays: Sequence[NDArray[Any] | None], dtype: type[np.generic]) -> pa.ListArray:
    """Return a column of lists of `dtype`; None becomes null, and a number beyond the range of `dtype` infinite."""
    offsets = np.append(0, np.cumsum(_sizes(arrays))).astype(np.int32)
    kept = [array for array in arrays if array is not None]
    with np.errstate(over="ignore"):
        values = np.concatenate(kept).astype(dtype, copy=False) if kept else np.empty(0, dtype=dtype)
    is_null = pa.array([array is None for array in arrays], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=is_null)


def _sizes(arrays: Sequence[NDArray[Any] | None]) -> NDArray[np.int64]:
    return np.array([0 if array is None else array.size for array in arrays], dtype=np.int64)


def _text_column(texts: Sequence[str | None]) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        # A lone surrogate, which UTF-8 has no bytes for.
        return pa.array([text and text.encode("utf-8", "replace").decode() for text in texts], pa.string())
