"""What users keep under a name, each kind in one file of the workbench's folder: saved views, Ray clusters."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from exgrpo_core.bounded_json import read_sealed, seal, seal_yaml
from exgrpo_core.durable_files import write_whole
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.runs.file_lock import FileLock
from jobs.specs.presets import read_mapping
from jobs.specs.train import NAME_PATTERN, SpecError, TrainSpec, merge_settings

MAX_ENTRIES = 100
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class NamedEntries:
    """The entries of one kind; processes that write at the same time lose none."""

    file_name: str
    noun: str
    """What an entry is, in the plural, as messages say it."""

    def list(self, runs_root: Path) -> dict[str, dict[str, str]]:
        """Return the entries by name, sorted; none where the file cannot be read."""
        try:
            return self._read(runs_root)
        except SpecError:
            return {}

    def find_fault(self, runs_root: Path) -> str:
        """Return in one sentence why the file cannot be read, nothing where it can."""
        try:
            self._read(runs_root)
        except SpecError as error:
            return str(error)
        return ""

    def save(self, runs_root: Path, name: str, entry: Mapping[str, str]) -> None:
        """Keep an entry, in place of an older one of its name.

        Raises:
            SpecError: The name is no name of a run, there are too many, or the file cannot be read or written.
        """
        if NAME_PATTERN.fullmatch(name) is None:
            raise SpecError(f"expected letters, digits, spaces and . _ + @ -, at most 80, got {name[:90]!r}.", "name")
        with self._locked(runs_root):
            entries = self._read(runs_root)
            if len(entries) >= MAX_ENTRIES and name not in entries:
                raise SpecError(f"{self.noun}: {MAX_ENTRIES} are kept already; delete one first.")
            self._write(runs_root, entries | {name: dict(entry)})

    def delete(self, runs_root: Path, name: str) -> None:
        """Remove an entry; one that is not there changes nothing.

        Raises:
            SpecError: The file cannot be read or written.
        """
        with self._locked(runs_root):
            entries = self._read(runs_root)
            if entries.pop(name, None) is not None:
                self._write(runs_root, entries)

    def _read(self, runs_root: Path) -> dict[str, dict[str, str]]:
        path = self._path(runs_root)
        try:
            content = read_sealed(path)
            return {
                name: {str(key): str(value) for key, value in entry.items()} for name, entry in sorted(content.items())
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError):
            raise SpecError(
                f"{path}: expected {self.noun} as JSON; move the file away to start without {self.noun}."
            ) from None

    def _write(self, runs_root: Path, entries: Mapping[str, Mapping[str, str]]) -> None:
        if entries:
            write_whole(self._path(runs_root), seal(json.dumps(entries, indent=1).encode()))
        else:
            self._path(runs_root).unlink(missing_ok=True)

    @contextmanager
    def _locked(self, runs_root: Path) -> Iterator[None]:
        """Keep other writers out between reading and writing."""
        path = self._path(runs_root)
        lock = FileLock(path.with_suffix(".lock"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not lock.acquire(_LOCK_SECONDS):
                raise SpecError(f"{path}: another process has kept it for {_LOCK_SECONDS:.0f} s; try again.")
            yield
        except OSError as error:
            raise SpecError(f"{path}: cannot be written ({error.strerror}); choose another runs root.") from None
        finally:
            lock.release()

    def _path(self, runs_root: Path) -> Path:
        return runs_root / WORKBENCH_FOLDER / self.file_name


SAVED_VIEWS = NamedEntries("views.json", "saved views")
"""What the address says of curves, by the view's name."""
RAY_CLUSTERS = NamedEntries("clusters.json", "Ray clusters")
"""The address of each cluster's Jobs API."""


DRAFTS_FOLDER = "drafts"


def save_draft(runs_root: Path, name: str, content: Mapping[str, Any]) -> Path:
    """Write a draft, replacing an older one of its name, and return its file, which `exgrpo train --spec` reads.

    Raises:
        SpecError: The name is not allowed for runs, or the folder cannot be written.
    """
    path = _path(runs_root, name)
    text = seal_yaml(yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror}); choose another runs root.") from None
    return path


def load_draft(runs_root: Path, name: str) -> dict[str, Any]:
    """Return a draft with every field; missing ones have their defaults.

    Raises:
        SpecError: There is no such draft, it differs from what was saved, or it is not YAML.
    """
    return merge_settings(TrainSpec().model_dump(mode="json"), read_mapping(_path(runs_root, name)))


def list_drafts(runs_root: Path) -> list[str]:
    """Return the names of all drafts, sorted."""
    return sorted(path.stem for path in (runs_root / WORKBENCH_FOLDER / DRAFTS_FOLDER).glob("*.yaml"))


def delete_draft(runs_root: Path, name: str) -> None:
    """Remove a draft if it exists.

    Raises:
        SpecError: The name is not allowed for drafts.
    """
    _path(runs_root, name).unlink(missing_ok=True)


def _path(runs_root: Path, name: str) -> Path:
    if NAME_PATTERN.fullmatch(name) is None:
        raise SpecError(
            "name: expected letters, digits, spaces and . _ + @ -, at most 80, a letter or digit first, got "
            f"{name[:90]!r}."
        )
    return runs_root / WORKBENCH_FOLDER / DRAFTS_FOLDER / f"{name}.yaml"
