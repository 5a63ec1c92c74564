"""prime-rl and verifiers: an episode a line, each with the traces of its agents.

Source: `Episode` and `Trace` of verifiers 0.4.0, which writes `traces.jsonl`, and `FileMonitor` of prime-rl. Until
August 2026 it has a folder `rollouts/step_N/{train,eval}/{all,effective}`, since then `monitors/file/traces` with
`stream.jsonl` or numbered files in `stream/`, and annotations. A trace is a tree of messages; each path to a leaf is a
trajectory.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from exgrpo.jobs.runs.rollout_formats.rollout_files import bare, list_files
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, number_of, of_mask, only_value, step_of
from exgrpo.jobs.runs.rollout_formats.source import Part, RolloutSource, Sample, is_evaluation
from exgrpo.jobs.runs.rollout_formats.trace_updates import TraceUpdates
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory
from exgrpo_core.types import PART_PREFIX

_FILE = "traces.jsonl"
_STREAMS = ("traces/stream.jsonl", "traces/stream/[0-9]*.jsonl")
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "context_length")


def recognises(sample: Sample) -> bool:
    """Whether there are episodes, or single traces as older versions wrote."""
    rows = (row for pattern in (_FILE, *_STREAMS) for row in sample.rows_of(pattern))
    return any({"traces", "task"} <= row.keys() or {"nodes", "rewards"} <= row.keys() for row in rows)


def parts(_: Path) -> list[Part]:
    """Return two parts, training and evaluation: a stream has both, else each has files of its own."""
    return [
        Part("-0", "", lambda file: _is_stream(file) or not is_evaluation(file), lambda row: _kind(row) != "eval"),
        Part(
            "-1", "evaluation", lambda file: _is_stream(file) or is_evaluation(file), lambda row: _kind(row) != "train"
        ),
    ]


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the traces of each file; those of `all` that are in `effective` too have trained."""
    files = [
        file for file in source.files(".jsonl") if bare(file).name == _FILE or _is_stream(file) or file == source.path
    ]
    read = [file for file in files if file.parent.name != "effective" or not (file.parents[1] / "all").is_dir()]
    for file in read:
        if _is_stream(file):
            folder = file.parent if bare(file).name == "stream.jsonl" else file.parents[1]
            updates, trained = TraceUpdates(folder / "annotations", source), None
        else:
            updates, trained = None, _trained(file.parent.parent / "effective")
        yield from source.rollouts([file], partial(_episode, trained, updates))


def _is_stream(file: Path) -> bool:
    return any(bare(file).match(pattern) for pattern in _STREAMS)


def _kind(row: Row) -> str | None:
    """Return `train` or `eval` where an episode of a training run says so."""
    work = (row.get("run") or {}).get("work") or {}
    kind: str | None = work.get("type") or ((row.get("traces") or [{}])[0].get("info") or {}).get("kind")
    return kind


def _trained(folder: Path) -> set[object] | None:
    """Return the ids of the episodes that trained, None where nothing says so."""
    found = (file for file in (list_files(folder) if folder.is_dir() else ()) if bare(file).name == _FILE)
    return next(({row.get("id") for _, row in RolloutSource(file).json_rows(file)} for file in found), None)


def _episode(
    trained: set[object] | None, updates: TraceUpdates | None, row: Row, file: Path
) -> Iterator[tuple[int, RecordedTrajectory]]:
    column: dict[str, Any] = {} if trained is None else {"trained": row.get("id") in trained}
    for trace in row.get("traces", [row]):
        paths, nodes, info = [*_paths(trace["nodes"])], trace["nodes"], trace.get("info") or {}
        if updates is not None:
            info = {**info, **updates.info.get(trace.get("id", ""), {})}
            nodes = updates.nodes_of(trace, paths)
            column = {"trained": bool(info.get("effective")), "ship_step": (info.get("ship") or {}).get("step")}
        for path in paths:
            made = _trajectory(row, trace, [nodes[index] for index in path], {*path})
            advantage = number_of(info, "advantage") if made.advantage is None else made.advantage
            yield _step(row, file), replace(made, advantage=advantage, extra={**made.extra, **column})


def _step(row: Row, file: Path) -> int:
    if work := (row.get("run") or {}).get("work"):
        return step_of(work, "step")
    return int(next((part for part in reversed(file.parts) if part.startswith("step_")), "step_0")[len("step_") :])


def _paths(nodes: list[Row]) -> Iterator[list[int]]:
    """Yield the indices of the nodes from the root to each leaf; a parent comes before its children."""
    parents = [node.get("parent") for node in nodes]
    if any(parent is not None and not 0 <= parent < index for index, parent in enumerate(parents)):
        raise ValueError("a parent that comes later")
    for leaf in sorted({*range(len(nodes))} - {*parents}):
        path = [leaf]
        while (parent := parents[path[-1]]) is not None:
            path.append(parent)
        yield path[::-1]


def _trajectory(episode: Row, trace: Row, nodes: list[Row], path: set[int]) -> RecordedTrajectory:
    task, calls = trace.get("task") or {}, [call for call in trace.get("calls") or () if call.get("node") in path]
    return RecordedTrajectory(
        messages=tuple(message for node in nodes for message in _messages(node)),
        reward=_reward(trace.get("rewards") or {}),
        question_id=task.get("key") or task.get("hash"),
        group=(episode.get("group") or {}).get("id"),
        answer=answer if isinstance(answer := (task.get("data") or {}).get("answer"), str) else None,
        is_truncated=_is_truncated(trace, calls),
        num_tokens=_num_tokens(nodes, calls),
        token_ids=[token for node in nodes for token in of_mask(node.get("token_ids"), node.get("mask")) or ()] or None,
        log_probs=_of_tokens(nodes, "logprobs"),
        entropies=_of_tokens(nodes, "entropies"),
        advantage=only_value(_of_tokens(nodes, "advantages")),
        extra=_extra(episode, trace),
    )


def _messages(node: Row) -> tuple[Message, ...]:
    """Return the parts of a node's message; what is known of the whole node is at the last, and pages sum a turn's."""
    found = messages_of({"message": [node["message"]]}, "message", is_generated=bool(node.get("sampled")))
    if not found or not any(node.get("mask") or ()):
        return found
    mean_entropy = fmean(node["entropies"]) if node.get("entropies") else None
    return (*found[:-1], replace(found[-1], num_tokens=sum(node["mask"]), mean_entropy=mean_entropy))


def _reward(rewards: dict[str, Row | None]) -> float | None:
    scored = [reward for reward in rewards.values() if reward is not None]
    return sum(reward["score"] * reward.get("weight", 1.0) for reward in scored) if scored else None


def _is_truncated(trace: Row, calls: list[Row]) -> bool | None:
    is_long = trace.get("stop_condition") in _LIMITS or bool(calls and calls[-1].get("finish_reason") == "length")
    return is_long if trace.get("is_completed") else None


def _num_tokens(nodes: list[Row], calls: list[Row]) -> int | None:
    usages = [call["usage"]["completion_tokens"] for call in calls if call.get("usage")]
    return sum(sum(node.get("mask") or ()) for node in nodes) or (sum(usages) if usages else None)


def _of_tokens(nodes: list[Row], name: str) -> list[float] | None:
    """Return the values of generated tokens; None unless each of them has one."""
    values = [value for node in nodes for value in node.get(name) or ()]
    return of_mask(values, [True] * sum(sum(node.get("mask") or ()) for node in nodes))


def _extra(episode: Row, trace: Row) -> dict[str, Any]:
    rewards = trace.get("rewards") or {}
    scores = {f"{PART_PREFIX}{name}": reward["score"] for name, reward in rewards.items() if reward}
    return {
        "env": (episode.get("env") or {}).get("id"),
        "agent": (trace.get("agent") or {}).get("name"),
        "stop_condition": trace.get("stop_condition"),
        **(scores if len(rewards) > 1 else {}),
        **(trace.get("metrics") or {}),
    }
