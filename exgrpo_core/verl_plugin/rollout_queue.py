"""verl's TransferQueue, which only this module knows: prompts that agent loops answer, and their rollouts.

A rollout stays in the queue, under its key, until it is cleared.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict

TRAINING, OTHER = "train", "val"
"""The partitions into which verl's agent loops put rollouts that are trained on, and all others."""
DONE = ("finished", "failure")
"""verl's states of a prompt whose rollouts are there, or some of them."""

POLL_SECONDS = 0.05
"""Seconds between polls for finished rollouts."""
MAX_POLLING_SHARE = 0.2
"""Share of the wait that polls take, at most: a list of many rollouts takes TransferQueue long."""
HEALTH_CHECK_SECONDS = 20.0
"""Seconds between checks that the agent loops live, while rollouts are awaited."""

Prompt = Mapping[str, Any]


@contextmanager
def open_queue(config: DictConfig) -> Iterator[None]:
    """Start the queue, by verl's settings of it where this verl has them, and end it afterwards."""
    settings = config.get("transfer_queue")
    if settings is not None:
        settings.enable = True
    tq.init(settings)
    try:
        yield
    finally:
        tq.close()


def fetch_rows(keys: Sequence[str], names: Sequence[str], partition: str = TRAINING) -> Any:
    """Return columns of rows, in the order of their keys."""
    return tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=list(names))


def put_column(keys: Sequence[str], name: str, column: torch.Tensor) -> None:
    """Put a column next to those of training's rows."""
    fields = TensorDict({name: column}, batch_size=[len(keys)])
    tq.kv_batch_put(keys=list(keys), partition_id=TRAINING, fields=fields)


def clear_rows(keys: Sequence[str], partition: str = TRAINING) -> None:
    """Remove rows."""
    if keys:
        tq.kv_clear(keys=list(keys), partition_id=partition)


def put_mark(key: str, step: int) -> tq.KVBatchMeta:
    """Put a key without a row, and return what verl calls its batch."""
    tags = [{"global_steps": step}]
    tq.kv_batch_put(keys=[key], partition_id=TRAINING, tags=tags)
    return tq.KVBatchMeta(partition_id=TRAINING, keys=[key], tags=tags)


def begin(agent_loops: Any, prompts: Sequence[Prompt], shared: Prompt, partition: str, step: int) -> None:
    """Have the agent loops answer the prompts."""
    batch = get_tensordict({name: [prompt[name] for prompt in prompts] for name in prompts[0]})
    assign_non_tensor_data(batch, "global_steps", step)
    for name, value in shared.items():
        assign_non_tensor_data(batch, name, value)
    if partition != TRAINING:
        assign_non_tensor_data(batch, "validate", True)
    uids = [prompt["uid"] for prompt in prompts]
    tags = [{"is_prompt": True, "status": "pending", "global_steps": step} for _ in uids]
    tq.kv_batch_put(keys=uids, partition_id=partition, tags=tags)
    agent_loops.generate_sequences(batch)


def take(prompts: Sequence[Prompt], partition: str, check: Callable[[], None]) -> dict[str, int]:
    """Wait for the prompts and return the rollouts that came: keys, and tokens with the prompt."""
    uids = {prompt["uid"] for prompt in prompts}
    listed = _await_prompts(uids, partition, check)
    clear_rows(sorted(uids), partition)
    return {key: int(tag["seq_len"]) for key, tag in listed.items() if key not in uids and key.split("_")[0] in uids}


def _await_prompts(uids: set[str], partition: str, check: Callable[[], None]) -> Mapping[str, Mapping[str, Any]]:
    """Return what is in the partition, by key, once agent loops, which `check` looks at, are done with the prompts."""
    checked_at = time.monotonic()
    while True:
        began_at = time.monotonic()
        listed: Mapping[str, Mapping[str, Any]] = tq.kv_list(partition_id=partition)[partition]
        poll_seconds = time.monotonic() - began_at
        if all(listed[uid]["status"] in DONE for uid in uids):
            return listed
        if began_at - checked_at > HEALTH_CHECK_SECONDS:
            checked_at = began_at
            check()
        time.sleep(max(POLL_SECONDS, poll_seconds * (1.0 / MAX_POLLING_SHARE - 1.0)))
