"""What a first look at a model's files finds before a run, remembered until they change."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from exgrpo_core.bounded_json import UnreadableFileError, read_json
from exgrpo_core.durable_files import write_whole
from jobs.pretrained.sources import cache_directory
from jobs.specs.train import TrainSpec

_PROGRAM = "jobs.engines.embedded.first_look"
_SECONDS = 300.0


def first_look(spec: TrainSpec) -> str | None:
    """Return in one sentence what the look found; None of a model that is no folder on this machine, or for verl."""
    folder = Path(spec.model.source)
    if spec.engine != "embedded" or not (folder / "config.json").is_file():
        return None
    remembered = cache_directory() / "first_looks" / f"{_identity(folder)}.json"
    try:
        found = read_json(remembered)
    except (OSError, UnreadableFileError):
        command = [sys.executable, "-P", "-m", _PROGRAM, str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        except subprocess.SubprocessError as error:
            return f"{folder}: could not be looked at ({error})."
        remembered.parent.mkdir(parents=True, exist_ok=True)
        write_whole(remembered, done.stdout.splitlines()[-1].encode())
        found = json.loads(done.stdout.splitlines()[-1])
    if "error" in found:
        return str(found["error"])
    return f"{folder}: looked at; sampled and scored log-probs differ by {found['gap']:.2g} nats in the mean."


def _identity(folder: Path) -> str:
    """Return digits that change with the folder's files."""
    states = ((path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file())
    files = [(name, state.st_size, state.st_mtime_ns) for name, state in states]
    return hashlib.sha256(repr((str(folder.resolve()), files)).encode()).hexdigest()[:16]
