"""A runs root whose runs go to a Ray cluster, and a supervisor that is driven look by look."""

from exgrpo.jobs.execution.supervisor.loop import Supervisor
from exgrpo.jobs.runs.launchers.local import LocalLauncher
from exgrpo.jobs.specs.train import ModelSpec, TrainSpec
from exgrpo.jobs.specs.verl import RaySpec, VerlSpec
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER, Bench
from tests.verl_on_cpu import on_cpu


def ray_spec(
    address: str | None, num_steps: int = 3, *tags: str, gpus_per_node: int = 1, checkpoint_interval: int = 1000
) -> TrainSpec:
    return TrainSpec(
        name="toy", engine="verl", model=ModelSpec(device="cpu"), num_steps=num_steps, tags=tags,
        verl=VerlSpec(**on_cpu(gpus_per_node), ray=RaySpec(address=address)), checkpoint_interval=checkpoint_interval,
    )  # fmt: skip


class RayBench(Bench):
    """The bench of local toy runs, with longer waits: each look asks the cluster."""

    launcher = LocalLauncher(TOY_WORKER)
    timeout_seconds, poll_seconds = 200.0, 0.5

    def start(self, max_running: int = 1, grace_seconds: float = 60.0, term_seconds: float = 1.0) -> Supervisor:
        return super().start(max_running, grace_seconds, term_seconds)
