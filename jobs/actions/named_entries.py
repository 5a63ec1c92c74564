"""What users keep under a name: saved views and Ray clusters in a file each, drafts of new runs as YAML.

Of a cluster it is the address of its Jobs API, never a token.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER, CommandError
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.launchers.ray_jobs_api import RayClusterState, read_cluster
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.mistakes import checked
from exgrpo.jobs.specs.presets import read_mapping
from exgrpo.jobs.specs.train import SpecError, TrainSpec, clean_name, merge_settings
from exgrpo.jobs.specs.verl import RaySpec
from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import explain, write_whole
from exgrpo_core.recording.attempt_gate import FileLock

MAX_ENTRIES = 100
_LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class NamedEntries:
    """The entries of one kind; processes that write at the same time lose none."""

    file_name: str
    noun: str
    """What an entry is, in the plural, as messages say it."""

    @needs(Role.VIEWER)
    def list(self, runs_root: Path) -> dict[str, dict[str, str]]:
        """Return the entries by name, sorted; none where the file cannot be read."""
        try:
            return self._read(runs_root)
        except SpecError:
            return {}

    @needs(Role.VIEWER)
    def find_fault(self, runs_root: Path) -> str:
        """Return in one sentence why the file cannot be read, nothing where it can."""
        try:
            self._read(runs_root)
        except SpecError as error:
            return str(error)
        return ""

    @needs(Role.OPERATOR)
    def save(self, runs_root: Path, name: str, entry: Mapping[str, str]) -> None:
        """Keep an entry, in place of an older one of its name.

        Raises:
            SpecError: The name is no name of a run, there are too many, or the file cannot be read or written.
        """
        _check_name(name)
        with self._locked(runs_root):
            entries = self._read(runs_root)
            if len(entries) >= MAX_ENTRIES and name not in entries:
                raise SpecError(f"{self.noun}: {MAX_ENTRIES} are kept already; delete one first.")
            self._write(runs_root, entries | {name: dict(entry)})

    @needs(Role.OPERATOR)
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
            content = read_json(path)
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
            write_whole(self._path(runs_root), json.dumps(entries, indent=1))
        else:
            self._path(runs_root).unlink(missing_ok=True)

    @contextmanager
    def _locked(self, runs_root: Path) -> Iterator[None]:
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


@needs(Role.OPERATOR)
def save_draft(runs_root: Path, name: str, content: Mapping[str, Any]) -> Path:
    """Write a draft, replacing an older one of its name, and return its file, which `exgrpo train --spec` reads.

    Raises:
        SpecError: The name is not allowed for runs, or the folder cannot be written.
    """
    path = _path(runs_root, name)
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise SpecError(f"{path}: cannot be written ({error.strerror}); choose another runs root.") from None
    return path


@needs(Role.VIEWER)
def load_draft(runs_root: Path, name: str) -> dict[str, Any]:
    """Return a draft with every field; missing ones have their defaults.

    Raises:
        SpecError: There is no such draft, or it is not YAML.
    """
    return merge_settings(TrainSpec().model_dump(mode="json"), read_mapping(_path(runs_root, name)))


@needs(Role.VIEWER)
def list_drafts(runs_root: Path) -> list[str]:
    """Return the names of all drafts, sorted."""
    return sorted(path.stem for path in (runs_root / WORKBENCH_FOLDER / DRAFTS_FOLDER).glob("*.yaml"))


@needs(Role.OPERATOR)
def delete_draft(runs_root: Path, name: str) -> None:
    """Remove a draft if it exists.

    Raises:
        SpecError: The name is not allowed for drafts.
    """
    _path(runs_root, name).unlink(missing_ok=True)


_MAX_FILE_BYTES = 240
"""File systems end names at 255 bytes, some of which a file that is being written adds."""


def _check_name(name: str) -> str:
    try:
        return clean_name(name)
    except ValueError as error:
        raise SpecError(f"{error}, got {name[:90]!r}.", "name") from None


def _path(runs_root: Path, name: str) -> Path:
    file = f"{_check_name(name)}.yaml"
    if len(file.encode()) > _MAX_FILE_BYTES:
        raise SpecError(
            f"expected a name of at most {_MAX_FILE_BYTES} bytes as a file, got {name!r}; shorten it.", "name"
        )
    return runs_root / WORKBENCH_FOLDER / DRAFTS_FOLDER / file


_ADDRESS = "address"


@needs(Role.VIEWER)
def list_clusters(runs_root: Path) -> dict[str, str]:
    """Return the addresses of all clusters by name."""
    return {name: entry[_ADDRESS] for name, entry in RAY_CLUSTERS.list(runs_root).items() if entry.get(_ADDRESS)}


@needs(Role.ADMIN)
def save_cluster(runs_root: Path, name: str, address: str) -> None:
    """Keep a cluster, in place of an older one of its name; nothing is sent to it.

    Raises:
        SpecError: Name or address is wrong, or the file cannot be written.
    """
    spec = checked(RaySpec, {_ADDRESS: address.strip().rstrip("/")}, "form")
    RAY_CLUSTERS.save(runs_root, name.strip(), {_ADDRESS: str(spec.address)})
    _record(runs_root, JournalKind.CLUSTER_ADDED, name.strip(), str(spec.address))


@needs(Role.ADMIN)
def delete_cluster(runs_root: Path, name: str) -> None:
    """Forget a cluster; runs that were sent to it keep its address."""
    address = list_clusters(runs_root).get(name)
    RAY_CLUSTERS.delete(runs_root, name)
    if address is not None:
        _record(runs_root, JournalKind.CLUSTER_REMOVED, name, address)


@needs(Role.ADMIN)
def ask_cluster(runs_root: Path, name: str) -> RayClusterState:
    """Ask a cluster what it has and runs.

    Raises:
        SpecError: There is none of this name.
        LaunchError: It may not be asked, cannot be reached, refuses the token, or is no Ray cluster.
    """
    try:
        address = list_clusters(runs_root)[name]
    except KeyError:
        raise SpecError(f"{name!r}: there is no such cluster; add it on the System page.") from None
    _record(runs_root, JournalKind.CLUSTER_TESTED, name, address)
    return read_cluster(address)


def _record(runs_root: Path, kind: JournalKind, name: str, address: str) -> None:
    try:
        Journal(runs_root).append(kind, "", cluster=name, address=address)
    except OSError as error:
        raise CommandError(f"{runs_root}: the action cannot be recorded ({explain(error)}).") from None
