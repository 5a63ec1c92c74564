"""Runs on other machines: scripts that start them, and the known Ray clusters.

Nothing is sent to a cluster unless an administrator asks for it.
"""

from app import settings
from app.commands import RunRefusedError, SpecError, TrainSpec, UserError, needs
from app.roles import Role
from jobs.actions import ray_clusters
from jobs.launchers.ray_cluster_state import RayClusterState
from jobs.preflight.dry_run import describe_plan, plan_run
from jobs.preflight.launch_scripts import LaunchScript, ScriptKind, write_script

__all__ = [
    "RayClusterState", "RunRefusedError", "ScriptKind", "SpecError", "TrainSpec", "UserError", "ask_cluster",
    "delete_cluster", "dry_run_text", "find_cluster_fault", "launch_script", "list_clusters", "save_cluster",
]  # fmt: skip


@needs(Role.OPERATOR)
def launch_script(spec: TrainSpec, kind: ScriptKind) -> LaunchScript:
    """Return what starts a run on other machines."""
    return write_script(spec, settings.current().runs_root, kind)


@needs(Role.OPERATOR)
def dry_run_text(spec: TrainSpec) -> str:
    """Return the text of a dry run, which may take seconds, or why there is none."""
    try:
        return describe_plan(plan_run(spec, settings.current().runs_root))
    except UserError as error:
        return str(error)


def list_clusters() -> dict[str, str]:
    """Return the addresses of all clusters by name."""
    return ray_clusters.list_clusters(settings.current().runs_root)


def find_cluster_fault() -> str:
    """Return in one sentence why no cluster can be read, nothing where they can."""
    return ray_clusters.find_fault(settings.current().runs_root)


@needs(Role.ADMIN)
def save_cluster(name: str, address: str) -> None:
    """Keep a cluster's address under a name."""
    ray_clusters.save_cluster(settings.current().runs_root, name, address)


@needs(Role.ADMIN)
def delete_cluster(name: str) -> None:
    """Remove a cluster from the list."""
    ray_clusters.delete_cluster(settings.current().runs_root, name)


@needs(Role.ADMIN)
def ask_cluster(name: str) -> RayClusterState:
    """Return what a cluster has and runs at this moment; takes seconds."""
    return ray_clusters.ask_cluster(settings.current().runs_root, name)
