"""Messages that were sent, one JSON line each in the workbench's folder, so that a restart sends none again."""

import json
from datetime import UTC, datetime
from pathlib import Path

from exgrpo_core.bounded_json import parse_json
from exgrpo_core.durable_files import append_line
from jobs.runs.directory import WORKBENCH_FOLDER

SENT_LOG_FILE = "alerts.jsonl"


class SentLog:
    """Append-only log of events and fingerprints of destinations, never their URLs."""

    def __init__(self, runs_root: Path) -> None:
        self._path = runs_root / WORKBENCH_FOLDER / SENT_LOG_FILE
        self._sent = self._read()

    def has(self, key: str, destination: str) -> bool:
        """Whether the message was sent to the destination."""
        return (key, destination) in self._sent

    def add(self, key: str, destination: str) -> None:
        """Record that the message was sent, on disk before it returns; while the disk is full, in memory only."""
        self._sent.add((key, destination))
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self._path, json.dumps({"at": at, "key": key, "destination": destination}).encode())

    def _read(self) -> set[tuple[str, str]]:
        sent = set()
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return set()
        for line in lines:
            try:
                record = parse_json(line)
                sent.add((str(record["key"]), str(record["destination"])))
            except (ValueError, KeyError, TypeError):
                continue
        return sent
