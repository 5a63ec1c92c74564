"""Every hook of the plug-in acts, or does nothing, inside Ray's actors of the classes that run in production.

Where a class of vLLM's side is needed, the tests run with the pins for GPUs; an actor is made as verl makes it.
"""

import inspect
import os
import warnings
from pathlib import Path

import pytest

from tests.exgrpo_core.verl_plugin.test_contract import check_extension
from tests.jobs.training.engines.verl_ray.engines import save_tiny_model, tiny_spec
from tests.records import read_lines
from tests.verl_on_cpu import GENERATOR_VARIABLE

needs_vllm = pytest.mark.verl_gpu_pins
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def composed(tmp_path_factory):
    """verl's configuration of the workbench's run, and a Ray in which vLLM's adapter and servers are verl's own."""
    folder = tmp_path_factory.mktemp("hooks")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import verl  # noqa: F401 - before the variable: this process stays one whose later engines generate

        patch.setenv(GENERATOR_VARIABLE, "vllm")
        patch.setenv("EXGRPO_RUNS_ROOT", str(folder / "runs"))
        from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import ENGINE_OVERRIDES, verl_overrides
        from exgrpo_core.verl_plugin.session import compose_config, ray_session

        spec = tiny_spec(save_tiny_model(folder / "model"), 1)
        config = compose_config([*ENGINE_OVERRIDES, *verl_overrides(spec, folder / "run")])
        with ray_session(config, {}):
            yield config, folder


def worker_group(worker: type, **settings):
    """Return one worker, made as verl's trainer makes its workers."""
    import ray
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

    pool = RayResourcePool([1], use_gpu=False, max_colocate_count=1)
    group = RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(worker), **settings), device_name="cpu")
    return group.workers[0]


def ask(actor, question, *arguments):
    import ray

    return ray.get(actor.__ray_call__.remote(question, *arguments), timeout=600)


def registered(_worker) -> tuple[str, str]:
    from verl.workers.engine import EngineRegistry
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    return EngineRegistry.get_engine_cls("language_model", "fsdp2").__name__, _ROLLOUT_REGISTRY["vllm", "async"]


@pytest.mark.verl
def test_engine_and_adapter_are_the_plug_ins_in_its_workers_and_verls_in_all_others(composed):
    from verl.workers.engine_workers import ActorRolloutRefWorker

    from exgrpo_core.verl_plugin.blocks import BlockWorker

    settings = {"config": composed[0].actor_rollout_ref, "role": "actor_rollout"}
    verls, own = worker_group(ActorRolloutRefWorker, **settings), worker_group(BlockWorker, **settings)
    assert ask(verls, registered) == ("FSDPEngineWithLMHead", "verl.workers.rollout.vllm_rollout.ServerAdapter")
    assert ask(own, registered) == ("GpuEngine", "exgrpo_core.verl_plugin.weight_exchange.WeightAdapter")


def recorded_run(folder: Path, name: str) -> Path:
    """Return the file of rollouts of the recorded run of that name."""
    (run,) = [path.parent for path in (folder / "runs").glob("*/spec.json") if name in path.read_text()]
    return run / "attempts" / "0001" / "record-0000-of-0001.jsonl.gz"


@pytest.fixture(scope="module")
def actor(composed):  # noqa: ARG001 - its Ray
    """An actor that is none of verl's workers."""
    import ray

    class Other:
        pass

    return ray.remote(Other).remote()


@pytest.mark.verl
def test_trainer_and_agent_loop_are_known_by_their_names_in_other_processes(actor):
    def names(_actor) -> tuple[str, bool]:
        from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
        from verl.trainer.ppo.v1 import get_trainer_cls

        return get_trainer_cls("exgrpo").__name__, "exgrpo_prompt_tokens" in _agent_loop_registry

    assert ask(actor, names) == ("RegisteredTrainer", True)


@pytest.mark.verl
def test_the_recorder_is_among_verls_loggers_in_an_actor(actor, composed):
    def log(_actor) -> None:
        from verl.utils.tracking import Tracking

        tracking = Tracking("project", "in an actor", ["exgrpo"], {"trainer": {"seed": 1}})
        tracking.log({"critic/score/mean": 0.5}, step=2)
        tracking.finish()

    ask(actor, log)
    recorded = recorded_run(composed[1], "in an actor")
    assert read_lines(recorded)[-1]["metrics"] == {"critic/score/mean": 0.5}
    assert '"finished"' in (recorded.parent / "outcome.json").read_text()


@pytest.mark.verl
def test_what_a_trainer_dumps_is_recorded_in_an_actor(actor, composed):
    folder = composed[1]

    def dump(_actor) -> None:
        from omegaconf import OmegaConf
        from verl.trainer.ppo.v1.trainer_base import PPOTrainer
        from verl.utils.tracking import Tracking

        class Trainer(PPOTrainer):
            def __init__(self) -> None:
                self.logger = Tracking("project", "dumps", ["exgrpo"], {"trainer": {"seed": 1}})
                self.config = OmegaConf.create({"trainer": {"rollout_data_dir": str(folder / "dumps")}})
                self.global_steps = 2
                self._init_dump_executor()

        Trainer.__abstractmethods__ = frozenset()
        trainer = Trainer()
        rows = {"inputs": ["a"], "outputs": ["b"], "gts": [None], "scores": [1.0]}
        trainer._dump_generations(**rows, reward_extra_infos_dict={}, dump_path=str(folder / "dumps"))
        trainer._shutdown_dump_executor()
        trainer.logger.finish()

    ask(actor, dump)
    recorded = recorded_run(folder, "dumps")
    assert "'b'" in str(read_lines(recorded)[0])


@pytest.mark.verl
def test_the_older_trainer_of_verls_command_refuses_to_replay(actor):
    from ray.exceptions import RayTaskError

    def create(_actor) -> None:
        from omegaconf import OmegaConf
        from verl.trainer.main_ppo_v0 import RayPPOTrainer

        RayPPOTrainer(OmegaConf.create({"trainer": {"v1": {"trainer_mode": "exgrpo"}}}), None, {}, None)

    with pytest.raises(RayTaskError, match=r"trainer\.use_v1: expected True if trainer\.v1\.trainer_mode"):
        ask(actor, create)


def start_server(config):
    """Return vLLM's server as a Ray actor, as verl's replica makes it before it launches the engine."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.rollout.replica import RolloutMode
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    actor = config.actor_rollout_ref
    replica = vLLMReplica(replica_rank=0, config=actor.rollout, model_config=actor.model, gpus_per_node=1)
    given = {"config": omega_conf_to_dataclass(actor.rollout), "model_config": actor.model, "workers": []}
    ranks = {"replica_rank": 0, "node_rank": 0, "gpus_per_node": 1, "nnodes": 1, "cuda_visible_devices": "0"}
    return replica.server_class.options(max_concurrency=100).remote(**given, **ranks, rollout_mode=RolloutMode.HYBRID)


WORKER = """
import importlib, json, sys
from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer
module, _, name = sys.argv[1].rpartition(".")
extension = getattr(importlib.import_module(module), name)
class Worker(extension):
    local_rank, device, model_runner = 0, None, None
worker = object.__new__(Worker)
worker._job = sys.argv[2] or None
print("FOUND", json.dumps([worker._get_zmq_handle(), bucketed_weight_transfer.BucketedWeightReceiver.__name__]))
"""


def receiver_of(server, job: str) -> tuple[str, str]:
    """Return socket and receiver of a process that the server's starts, with the extension that vLLM is given."""
    import json
    import subprocess
    import sys

    extension = server.config.engine_kwargs["vllm"].get("worker_extension_cls", server._get_worker_extension_cls())
    done = subprocess.run([sys.executable, "-c", WORKER, extension, job], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    assert lines, done.stderr[-3000:]
    return tuple(json.loads(lines[0].removeprefix("FOUND")))


def make_adapter(_worker, config) -> tuple[str, str, str]:
    """Return class, socket and job of the adapter that verl makes in a worker."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.rollout.base import get_rollout_class

    os.environ.update(RANK="0", RAY_LOCAL_WORLD_SIZE="1")
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    adapter = get_rollout_class("vllm", "async")(config=rollout, model_config=None, device_mesh=None)
    return type(adapter).__name__, adapter.zmq_handle, getattr(adapter, "_job", "")


@needs_vllm
def test_sender_and_server_of_the_plug_ins_trainer_name_the_same_socket(composed):
    from exgrpo_core.verl_plugin.blocks import BlockWorker
    from exgrpo_core.verl_plugin.own_exchange import use_own_exchange

    config = composed[0].copy()
    use_own_exchange(config)
    worker = worker_group(BlockWorker, config=config.actor_rollout_ref, role="actor_rollout")
    kind, sender, job = ask(worker, make_adapter, config)
    receiver = ask(start_server(config), receiver_of, job)
    assert (kind, sender) == ("WeightAdapter", receiver[0])
    assert receiver == (f"ipc:///tmp/exgrpo-weights-{job}-replica-0-rank-0.sock", "LimitedReceiver")


@pytest.mark.verl
def test_an_extension_of_the_users_own_is_refused_by_its_field(composed):
    from omegaconf import OmegaConf

    from exgrpo_core.errors import InputError
    from exgrpo_core.verl_plugin.own_exchange import use_own_exchange

    config = composed[0].copy()
    field = "actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls"
    OmegaConf.update(config, field, "mine.Extension", force_add=True)
    with pytest.raises(InputError, match=rf"{field}: expected none, got mine\.Extension"):
        use_own_exchange(config)


@needs_vllm
def test_with_the_plug_in_merely_installed_sender_and_server_are_verls(composed):
    from verl.workers.engine_workers import ActorRolloutRefWorker

    config = composed[0]
    worker = worker_group(ActorRolloutRefWorker, config=config.actor_rollout_ref, role="actor_rollout")
    kind, sender, _ = ask(worker, make_adapter, config)
    receiver = ask(start_server(config), receiver_of, "")
    assert (kind, receiver) == ("ServerAdapter", (sender, "BucketedWeightReceiver"))
    assert sender.startswith("ipc:///tmp/rl-colocate-zmq-")


@needs_vllm
def test_a_worker_on_gpus_that_only_generate_has_the_plug_ins_adapter(composed):
    from omegaconf import OmegaConf
    from verl.checkpoint_engine.base import CheckpointEngineWorker
    from verl.utils.config import omega_conf_to_dataclass

    from exgrpo_core.verl_plugin.own_exchange import use_own_exchange

    config = composed[0].copy()
    OmegaConf.update(config, "actor_rollout_ref.rollout.checkpoint_engine.backend", "nccl")
    use_own_exchange(config)
    actor = config.actor_rollout_ref
    settings = {"rollout_config": omega_conf_to_dataclass(actor.rollout), "model_config": actor.model}
    worker = worker_group(CheckpointEngineWorker, **settings, replica_rank=0)
    assert ask(worker, lambda made: type(made.server_adapter).__name__) == "WeightAdapter"


@needs_vllm
@pytest.mark.parametrize("name", ["vllm_extension.WeightExtension", "weight_exchange.WeightAdapter"])
def test_an_extension_for_vllm_takes_the_arguments_of_the_method_that_it_replaces(name):
    check_extension(name)


@needs_vllm
def test_vllm_has_no_attribute_that_the_extension_would_hide():
    from vllm.v1.worker.gpu_worker import Worker

    from exgrpo_core.verl_plugin.vllm_extension import WeightExtension

    own = {name for name, _ in inspect.getmembers(WeightExtension) if not name.startswith("__")}
    assert own & set(dir(Worker)) == set()
