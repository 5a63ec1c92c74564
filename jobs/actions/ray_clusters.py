"""The Ray clusters that users added: a name and the address of its Jobs API each, never a token."""

from pathlib import Path

from jobs.launchers.ray_jobs_api import RayClusterState, read_cluster
from jobs.runs.journal import Journal, JournalKind
from jobs.runs.lookup import CommandError
from jobs.runs.named_entries import RAY_CLUSTERS
from jobs.specs.mistakes import SpecError, checked
from jobs.specs.verl import RaySpec

_ADDRESS = "address"


def list_clusters(runs_root: Path) -> dict[str, str]:
    """Return the addresses of all clusters by name."""
    return {name: entry[_ADDRESS] for name, entry in RAY_CLUSTERS.list(runs_root).items() if entry.get(_ADDRESS)}


def find_fault(runs_root: Path) -> str:
    """Return in one sentence why the file of clusters cannot be read, nothing where it can."""
    return RAY_CLUSTERS.find_fault(runs_root)


def save_cluster(runs_root: Path, name: str, address: str) -> None:
    """Keep a cluster, in place of an older one of its name; nothing is sent to it.

    Raises:
        SpecError: Name or address is wrong, or the file cannot be written.
    """
    spec = checked(RaySpec, {_ADDRESS: address.strip().rstrip("/")}, "form")
    RAY_CLUSTERS.save(runs_root, name.strip(), {_ADDRESS: str(spec.address)})
    _record(runs_root, JournalKind.CLUSTER_ADDED, name.strip(), str(spec.address))


def delete_cluster(runs_root: Path, name: str) -> None:
    """Forget a cluster; runs that were sent to it keep its address."""
    address = list_clusters(runs_root).get(name)
    RAY_CLUSTERS.delete(runs_root, name)
    if address is not None:
        _record(runs_root, JournalKind.CLUSTER_REMOVED, name, address)


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
    """Write the action into the journal.

    Raises:
        CommandError: The journal cannot be written.
    """
    try:
        Journal(runs_root).append(kind, "", cluster=name, address=address)
    except OSError as error:
        raise CommandError(f"{runs_root}: the action cannot be recorded ({error.strerror}).") from None
