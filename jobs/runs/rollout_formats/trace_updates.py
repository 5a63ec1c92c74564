"""Annotations of prime-rl: what it learned of a trace after the trace's episode was written.

Source: `monitors/file/traces` of prime-rl in September 2026. A record names the trace. It has scalars (`info`) and, for
each branch, one value a token of the whole branch, null where there is none; the newest value counts.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from math import isnan, nan
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.rollout_formats.rollout_files import bare, list_files
from exgrpo.jobs.runs.rollout_formats.row_fields import Row
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource

_STREAMS = ("advantages", "entropies")
_MAX_VALUES = 20_000_000
"""Values of tokens in memory, of 8 bytes each."""


class TraceUpdates:
    """The annotations in a folder, by the trace's id; a folder that is missing has none."""

    def __init__(self, folder: Path, source: RolloutSource) -> None:
        """Read them; what cannot be read counts as a bad row of the source."""
        self.info: dict[str, dict[str, Any]] = defaultdict(dict)
        self._streams: dict[str, dict[tuple[int, str], array[float]]] = defaultdict(dict)
        num_values = 0
        for file in list_files(folder) if folder.is_dir() else ():
            if not bare(file).name.endswith(".jsonl") or bare(file).name.endswith(".index.jsonl"):
                continue
            for number, row in RolloutSource(file, bad=source.bad).json_rows(file):
                try:
                    num_values += self._add(row, is_full=num_values >= _MAX_VALUES)
                except (KeyError, TypeError, ValueError, AttributeError):
                    source.bad.add(file, number, "expected an annotation of a trace.")
        if num_values >= _MAX_VALUES:
            source.bad.add(folder, 0, f"has over {_MAX_VALUES:,} values of tokens; those after them are not shown.")

    def _add(self, row: Row, *, is_full: bool) -> int:
        trace_id, num_values = row["trace_id"], 0
        self.info[trace_id].update(row.get("info") or {})
        for branch in () if is_full else row.get("branches") or ():
            for name in _STREAMS:
                if values := branch.get(name):
                    kept = array("d", [nan if value is None else value for value in values])
                    self._streams[trace_id][int(branch["index"]), name] = kept
                    num_values += len(kept)
        return num_values

    def nodes_of(self, trace: Row, paths: Sequence[Sequence[int]]) -> list[Row]:
        """Return a trace's nodes with the values of their generated tokens; `paths` has the nodes of each branch."""
        nodes = [*trace["nodes"]]
        for (branch, name), values in self._streams.get(trace.get("id", ""), {}).items():
            path = paths[branch] if branch < len(paths) else ()
            ends = [*accumulate((len(nodes[index].get("token_ids") or ()) for index in path), initial=0)]
            for index, start, end in zip(path, ends, ends[1:], strict=False):
                mask = nodes[index].get("mask") or ()
                own = [value for value, is_own in zip(values[start:end], mask, strict=False) if is_own]
                if own and end <= len(values) and not any(map(isnan, own)):
                    nodes[index] = {**nodes[index], name: own}
        return nodes
