"""Rollouts from verl's agent loops: failed ones are tried a second time, then their prompt is left out."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import transfer_queue as tq
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict

from exgrpo_core.verl_plugin.rows import PARTITION, QueuedRow, clear_rows

logger = logging.getLogger(__name__)

NO_ROLLOUTS = "no materializable trajectories"
SECOND_TRY = "again"
"""Ends the uid of a prompt that is tried a second time; verl's keys give `_` a meaning of its own."""

Prompt = Mapping[str, Any]


class RolloutSource(Protocol):
    """The parts of verl's trainer that generate."""

    global_steps: int
    agent_loop_manager: Any
    replay_buffer: Any


@dataclass(frozen=True, slots=True)
class Generated:
    """The rollouts of a batch of prompts, which stay in TransferQueue until the caller clears them."""

    rows: list[QueuedRow]
    """All rollouts that are there, prompt by prompt, in the order of their number."""
    failed: list[int]
    """Positions of the prompts that are left out, since a rollout of each failed twice."""


def generate(
    source: RolloutSource, prompts: Sequence[Prompt], shared: Mapping[str, Any], is_training: bool
) -> Generated:
    """Return the rollouts of all prompts; a prompt with a failed rollout is generated a second time, with its seeds.

    A prompt's columns are those of `agent_loop`, with `uid` and `__rollout_n__`; `shared` are equal for all.
    """
    partition = partition_of(is_training)
    lengths: dict[str, int] = {}
    wanted: list[str] = []
    try:
        lengths |= _dispatch(source, prompts, shared, partition)
        missing = [prompt for prompt in prompts if not lengths.keys() >= set(_keys(prompt))]
        if missing:
            logger.warning("%d of %d prompts had a failed rollout and are tried again.", len(missing), len(prompts))
            lengths |= _dispatch(source, [_second(prompt) for prompt in missing], shared, partition)
        kept: list[str] = []
        failed = []
        for position, prompt in enumerate(prompts):
            keys = next((keys for keys in (_keys(prompt), _keys(_second(prompt))) if lengths.keys() >= set(keys)), None)
            if keys is None:
                failed.append(position)
            else:
                kept += keys
        wanted = kept
        return Generated([QueuedRow(key, lengths[key]) for key in wanted], failed)
    finally:
        clear_rows(sorted(lengths.keys() - set(wanted)), partition)


def partition_of(is_training: bool) -> str:
    """Return the partition of TransferQueue into which verl's agent loops put rollouts."""
    return PARTITION if is_training else "val"


def _second(prompt: Prompt) -> Prompt:
    return {**prompt, "uid": f"{prompt['uid']}-{SECOND_TRY}"}


def _keys(prompt: Prompt) -> list[str]:
    return [f"{prompt['uid']}_{number}_0" for number in range(prompt["__rollout_n__"])]


def _dispatch(
    source: RolloutSource, prompts: Sequence[Prompt], shared: Mapping[str, Any], partition: str
) -> dict[str, int]:
    """Have the agent loops answer the prompts, and return the rollouts that came: keys, and tokens with the prompt."""
    batch = get_tensordict({name: [prompt[name] for prompt in prompts] for name in prompts[0]})
    assign_non_tensor_data(batch, "global_steps", source.global_steps)
    for name, value in shared.items():
        assign_non_tensor_data(batch, name, value)
    if partition != PARTITION:
        assign_non_tensor_data(batch, "validate", True)
    uids = [prompt["uid"] for prompt in prompts]
    tags = [{"is_prompt": True, "status": "pending", "global_steps": source.global_steps} for _ in uids]
    tq.kv_batch_put(keys=uids, partition_id=partition, tags=tags)
    source.agent_loop_manager.generate_sequences(batch)
    try:
        sampled, _ = source.replay_buffer.sample(source.global_steps, partition, len(uids))
    except RuntimeError as error:
        if NO_ROLLOUTS not in str(error):
            raise
        # verl leaves the prompts in its queue, where the next call would take them for its own.
        tq.kv_clear(keys=uids, partition_id=partition)
        return {}
    return {key: int(tag["seq_len"]) for key, tag in zip(sampled.keys, sampled.tags, strict=True)}
