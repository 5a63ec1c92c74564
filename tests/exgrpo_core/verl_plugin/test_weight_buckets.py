"""verl's sender and receiver of weights: a bucket that is smaller than a weight, and GPUs that share no memory."""

import asyncio
import copyreg
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exgrpo.jobs.specs.train import load_preset
from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import verl_overrides
from exgrpo_core.verl_plugin.settings import EXTERNAL_MODULES_VARIABLE, PLATFORM_VARIABLE, UNSHARED_VARIABLES

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(1200)]

SIZES = {"small": 1000, "embedding": 400_000, "last": 77}
"""Float32 numbers of each weight: the second is larger than a bucket of 1 MiB."""


@pytest.fixture(autouse=True)
def _how_others_pickle():
    """Keep what `transfer` changes to its test."""
    from torch.multiprocessing import get_sharing_strategy, set_sharing_strategy

    registered, strategy = dict(copyreg.dispatch_table), get_sharing_strategy()
    yield
    copyreg.dispatch_table.clear()
    copyreg.dispatch_table.update(registered)
    set_sharing_strategy(strategy)


def weights():
    import torch

    return [(name, torch.arange(size, dtype=torch.float32) + size) for name, size in SIZES.items()]


def transfer():
    """Return verl's module; tensors are pickled as names of files in shared memory, where a GPU's would be handles."""
    import torch
    import verl
    from torch.multiprocessing import reductions, set_sharing_strategy

    set_sharing_strategy("file_system")
    copyreg.pickle(torch.UntypedStorage, reductions.reduce_storage)
    copyreg.pickle(torch.storage.TypedStorage, reductions.reduce_typed_storage)
    # Its package needs vLLM, this module does not.
    path = Path(verl.__file__).parent / "workers" / "rollout" / "vllm_rollout" / "bucketed_weight_transfer.py"
    spec = importlib.util.spec_from_file_location("bucketed_weight_transfer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.get_device_id = lambda: 0  # the tests' platform has a name there
    return module


def receive(asked, results):
    import torch

    buckets = transfer()
    while True:
        handle, use_shm = asked.get()
        received = []
        receiver = buckets.BucketedWeightReceiver(handle, torch.device("cpu"), use_shm)
        receiver.receive_weights(
            lambda named, _is_last, received=received: received.extend(
                (name, tensor.clone().tolist()) for name, tensor in named
            )
        )
        results.put(received)


@pytest.fixture(scope="module")
def send(tmp_path_factory):
    """Return a function that sends from this process and returns what another one got, which serves all tests."""
    context = multiprocessing.get_context("spawn")
    asked, results = context.Queue(), context.Queue()
    process = context.Process(target=receive, args=(asked, results), daemon=True)
    process.start()

    def send(bucket_mib, use_shm):
        handle = f"ipc://{tmp_path_factory.mktemp('weights')}/socket"
        asked.put((handle, use_shm))
        asyncio.run(transfer().BucketedWeightSender(handle, bucket_mib, use_shm).async_send_weights(iter(weights())))
        return results.get(timeout=60)

    yield send
    process.kill()
    process.join()


@pytest.mark.parametrize("use_shm", [False, True])
def test_a_bucket_that_holds_the_largest_weight_takes_all(send, use_shm):
    assert send(2, use_shm) == [(name, tensor.tolist()) for name, tensor in weights()]


def test_a_weight_beyond_the_bucket_goes_by_a_handle_of_its_own(send):
    assert send(1, use_shm=False) == [(name, tensor.tolist()) for name, tensor in weights()]


def test_a_weight_beyond_the_bucket_has_no_way_through_shared_memory(send):
    """Last: the receiver waits on."""
    with pytest.raises(AssertionError, match=r"Weight embedding.* too large to fit in the bucket"):
        send(1, use_shm=True)


def test_runs_of_the_paper_get_a_bucket_that_holds_the_largest_weight():
    name = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
    settings = dict(word.split("=", 1) for word in verl_overrides(load_preset("paper-exgrpo"), Path("run")))
    assert int(settings[name]) << 20 >= 152_064 * 3584 * 4  # Qwen2.5-Math-7B's embedding in float32


ON_GPUS = """
import json, multiprocessing, os, sys
import ray, tensordict, torch, transformers  # which take longest, and know nothing of verl

def look(variables):
    os.environ.update(variables)
    import verl
    from verl.plugin.platform import get_platform
    from verl.plugin.platform.platform_cuda import PlatformCUDA
    from verl.utils.device import get_device_name, is_support_ipc
    is_cuda = get_platform().vendor_name == PlatformCUDA().vendor_name
    print("FOUND", json.dumps([is_support_ipc(), get_device_name(), is_cuda]), flush=True)

for variables in json.loads(sys.argv[1]):
    process = multiprocessing.get_context("fork").Process(target=look, args=[variables])
    process.start()
    process.join()
"""


def test_a_worker_on_gpus_that_share_no_memory_sends_through_the_hosts():
    ours = (PLATFORM_VARIABLE, EXTERNAL_MODULES_VARIABLE)
    plain = {name: value for name, value in os.environ.items() if name not in ours}
    command = [sys.executable, "-W", "ignore", "-c", ON_GPUS]
    command.append(json.dumps([{PLATFORM_VARIABLE: "nvidia"}, UNSHARED_VARIABLES]))
    done = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
    found = [json.loads(line.removeprefix("FOUND")) for line in done.stdout.splitlines() if line.startswith("FOUND")]
    assert found == [[True, "cuda", True], [False, "cuda", True]]
