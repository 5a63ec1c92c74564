"""What a Ray cluster has and runs at this moment, asked once, over HTTP."""

import os
from dataclasses import dataclass

from jobs.launchers.local import LaunchError
from jobs.launchers.ray_jobs_api import RayJobsApi, RayJobsError, RayMachine
from jobs.launchers.ray_jobs_rules import check_address, check_ray_version
from jobs.machine.engine_environments import verl_pins
from jobs.specs.verl import RAY_TOKEN_VARIABLE, RaySpec, VerlSpec

OPEN_CLUSTER = "It needs no token: anyone who reaches it can run programs on it."


@dataclass(frozen=True, slots=True)
class RayClusterState:
    """The answer of a cluster."""

    ray_version: str
    machines: tuple[RayMachine, ...]
    running_jobs: tuple[str, ...]
    """Ids of jobs; those of runs here are the run's id and the attempt."""
    problems: tuple[str, ...]
    """What a run would be refused for, or should be known before."""


def read_cluster(address: str) -> RayClusterState:
    """Ask the cluster at an address, with the token of the environment.

    Raises:
        LaunchError: It may not be asked, cannot be reached, refuses the token, or is no Ray cluster.
    """
    token = os.environ.get(RAY_TOKEN_VARIABLE)
    check_address(VerlSpec(ray=RaySpec(address=address)), token)
    api = RayJobsApi(address, token)
    try:
        version = api.ray_version()
        problems = [] if api.asks_for_token() else [OPEN_CLUSTER]
        try:
            check_ray_version(address, version, verl_pins())
        except LaunchError as error:
            problems.append(str(error))
        return RayClusterState(version, tuple(api.machines()), tuple(api.running_jobs()), tuple(problems))
    except RayJobsError as error:
        raise LaunchError(str(error)) from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise LaunchError(f"{address}: answers, but not as Ray's dashboard does; correct the address.") from None
    finally:
        api.close()
