"""A runs root whose runs go to a Ray cluster, and a supervisor that is driven look by look."""

import time
from collections.abc import Callable
from pathlib import Path

from jobs.launchers.local import LocalLauncher
from jobs.runs.control import RunStatus
from jobs.specs.train import ModelSpec, TrainSpec
from jobs.specs.verl import RaySpec, VerlSpec
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.loop import Supervisor, SupervisorSettings
from jobs.supervisor.watch import StopPolicy
from tests.jobs.supervisor.toy_bench import Bench
from tests.verl_on_cpu import on_cpu

TOY_RAY_WORKER = "tests.jobs.launchers.toy_ray_worker"
TIMEOUT_SECONDS = 200.0
POLL_SECONDS = 0.5
"""Each look asks the cluster, whose dashboard and agents compute for it."""


def ray_spec(
    address: str | None, num_steps: int = 3, *tags: str, gpus_per_node: int = 1, checkpoint_interval: int = 1000
) -> TrainSpec:
    verl = VerlSpec(**on_cpu(gpus_per_node), ray=RaySpec(address=address))
    return TrainSpec(
        name="toy",
        engine="verl",
        model=ModelSpec(device="cpu"),
        num_steps=num_steps,
        tags=tags,
        verl=verl,
        checkpoint_interval=checkpoint_interval,
    )


class RayBench(Bench):
    """The bench of local toy runs, with more patience and another worker."""

    def __init__(self, runs_root: Path) -> None:
        runs_root.mkdir(parents=True, exist_ok=True)
        super().__init__(runs_root)

    def start(
        self, max_running: int = 1, grace_seconds: float = 60.0, term_seconds: float = 1.0, is_toy: bool = True
    ) -> Supervisor:
        settings = SupervisorSettings(max_running, StopPolicy(grace_seconds, term_seconds))
        launcher = LocalLauncher(TOY_RAY_WORKER if is_toy else None)
        self.supervisor = Supervisor(self.runs_root, DatabaseIndex(None, self.runs_root), launcher, settings)
        return self.supervisor

    def look_until(self, run_id: str, *statuses: RunStatus, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.look_while(lambda: self.status_of(run_id) not in statuses, f"{run_id} to be {statuses}", timeout_seconds)

    def look_while(self, condition: Callable[[], bool], what: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        assert self.supervisor is not None
        give_up_at = time.monotonic() + timeout_seconds
        self.supervisor.poll()
        while condition():
            assert not self.supervisor.is_idle, f"ended before {what}: {self.supervisor._states}"
            assert time.monotonic() < give_up_at, f"waited in vain: {what}; {self.supervisor._states}"
            time.sleep(POLL_SECONDS)
            self.supervisor.poll()

    def status_of(self, run_id: str) -> RunStatus | None:
        assert self.supervisor is not None
        state = self.supervisor.state_of(run_id)
        return state.status if state else None

    def reason_of(self, run_id: str) -> str:
        assert self.supervisor is not None
        state = self.supervisor.state_of(run_id)
        assert state is not None
        return state.reason

    def log_of(self, run_id: str) -> str:
        return self.run_of(run_id).log_path.read_text(encoding="utf-8")
