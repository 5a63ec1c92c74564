"""Ray clusters over HTTP: which may be asked, and their Jobs API; Ray is not needed on this side."""

import ipaddress
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, urlsplit

import httpx2

from exgrpo.jobs.machine.model_server import is_link_local
from exgrpo.jobs.runs.launchers.local import LaunchError
from exgrpo.jobs.specs.verl import RAY_TOKEN_VARIABLE, VerlSpec

logging.getLogger("httpx2").setLevel(logging.WARNING)  # it reports every request as INFO

_TIMEOUT = httpx2.Timeout(20.0, connect=5.0)
_NO_DASHBOARD = "answers, but not as Ray's dashboard does; correct verl.ray.address."
_NOT_READY = "No available agent"
"""Ray's answer to a job before the agent of the head has reported itself."""
_START_SECONDS = 60.0
_POLL_SECONDS = 0.5


class RayJobsError(Exception):
    """A request that failed; one sentence says why."""


class RayUnreachableError(RayJobsError):
    """No answer from the address, or not in time."""


class RayNotReadyError(RayJobsError):
    """The cluster takes no job: the agent of its head still starts, or could not."""


class RayJobStatus(StrEnum):
    """Ray's states of a job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class RayJob:
    """A job as Ray knows it. `exit_code` is that of its program, None if it was never started or was stopped."""

    status: RayJobStatus
    message: str
    exit_code: int | None

    @property
    def is_over(self) -> bool:
        """Whether its program has ended."""
        return self.status not in (RayJobStatus.PENDING, RayJobStatus.RUNNING)


def is_loopback(address: str) -> bool:
    """Whether an http address is this machine's loopback."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_address(spec: VerlSpec, token: str | None) -> None:
    """Refuse a cluster on another machine that no token protects, unless the user allows it.

    Raises:
        LaunchError: It is another machine's and no token is set, or link-local, as metadata services are.
    """
    host = urlsplit(spec.ray.address or "").hostname or ""
    if host and is_link_local(host):
        raise LaunchError(
            f"{spec.ray.address}: is a link-local address, where no Ray cluster can be; name the cluster's."
        )
    if needs_token(spec) and not token:
        raise LaunchError(
            f"{spec.ray.address}: is on another machine and {RAY_TOKEN_VARIABLE} is not set; start the cluster with "
            "RAY_AUTH_MODE=token and set its token, or allow it with verl.ray.allow_unauthenticated."
        )


def needs_token(spec: VerlSpec) -> bool:
    """Whether the cluster must require a token: it is on another machine and the user does not allow it without."""
    return not (spec.ray.allow_unauthenticated or is_loopback(spec.ray.address or ""))


class RayJobsApi:
    """The jobs of one cluster. Calls wait at most 20 seconds and may be made from any one thread."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address = address.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(base_url=self.address, timeout=_TIMEOUT, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ray_version(self) -> str:
        """Return the version of Ray that the cluster runs.

        Raises:
            RayJobsError: It cannot be reached, refuses the token, or is no Ray cluster.
        """
        try:
            return str(self._ask("GET", "/api/version", can_be_missing=True).json()["ray_version"])
        except (ValueError, LookupError, TypeError):
            raise RayJobsError(f"{self.address}: {_NO_DASHBOARD}") from None

    def asks_for_token(self) -> bool:
        """Whether the cluster refuses requests without a token."""
        try:
            return self._client.get("/api/version").status_code in (401, 403)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    def submit(self, submission_id: str, entrypoint: str, environment: dict[str, str]) -> None:
        """Start a job under this id; an existing job of this id is not changed. A cluster that starts is waited for."""
        if self.job(submission_id) is not None:
            return
        runtime_environment = {"env_vars": environment}
        body = {"submission_id": submission_id, "entrypoint": entrypoint, "runtime_env": runtime_environment}
        give_up_at = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._ask("POST", "/api/jobs/", body)
            except RayNotReadyError:
                if time.monotonic() >= give_up_at:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return

    def job(self, submission_id: str) -> RayJob | None:
        """Return a job, None if the cluster knows none of this id."""
        answer = self._ask("GET", _path(submission_id), can_be_missing=True)
        if answer.status_code == httpx2.codes.NOT_FOUND:
            return None
        content = answer.json()
        status = RayJobStatus(content["status"])
        return RayJob(status, str(content.get("message") or ""), content.get("driver_exit_code"))

    def log(self, submission_id: str) -> bytes:
        """Return everything that a job has printed, nothing for a job that the cluster does not know."""
        answer = self._ask("GET", f"{_path(submission_id)}/logs", can_be_missing=True)
        if answer.status_code == httpx2.codes.NOT_FOUND:
            return b""
        return str(answer.json().get("logs") or "").encode()

    def stop(self, submission_id: str) -> None:
        """Ask Ray to end a job's processes, by SIGTERM first; one that is over is not changed."""
        self._ask("POST", f"{_path(submission_id)}/stop", can_be_missing=True)

    def delete(self, submission_id: str) -> None:
        """Make Ray forget a job that is over."""
        self._ask("DELETE", _path(submission_id), can_be_missing=True)

    def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, can_be_missing: bool = False
    ) -> httpx2.Response:
        try:
            answer = self._client.request(method, path, headers=self._headers, json=body)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None
        if answer.status_code in (401, 403):
            raise RayJobsError(
                f"{self.address}: the cluster refuses the token; set EXGRPO_RAY_TOKEN to the one it was started with."
            )
        is_missing = answer.status_code == httpx2.codes.NOT_FOUND
        if not answer.is_success and not (is_missing and can_be_missing):
            reason = ([line for line in answer.text.splitlines() if line.strip(" .")] or ["no reason given"])[-1]
            kind = RayNotReadyError if _NOT_READY in answer.text else RayJobsError
            raise kind(f"{self.address}: Ray answered {answer.status_code} to {method} {path} ({reason}).")
        return answer

    def _unreachable(self, error: httpx2.HTTPError) -> RayUnreachableError:
        reason = str(error) or type(error).__name__
        return RayUnreachableError(
            f"{self.address}: no Ray cluster can be reached ({reason}); start it, or correct verl.ray.address."
        )


def _path(submission_id: str) -> str:
    return f"/api/jobs/{quote(submission_id, safe='')}"
