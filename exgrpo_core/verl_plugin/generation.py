"""Rollouts from verl's agent loops: failed ones are tried a second time, then their prompt is left out."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import transfer_queue as tq
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict

logger = logging.getLogger(__name__)

COLUMNS = ("prompts", "responses", "rm_scores", "rollout_log_probs", "extra_fields")
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
    """The rollouts of a batch of prompts."""

    rows: Any
    """`COLUMNS` of all rollouts that are there, prompt by prompt, in the order of their number; None if none is."""
    failed: list[int]
    """Positions of the prompts that are left out, since a rollout of each failed twice."""


def generate(
    source: RolloutSource, prompts: Sequence[Prompt], shared: Mapping[str, Any], is_training: bool
) -> Generated:
    """Return the rollouts of all prompts; a prompt with a failed rollout is generated a second time, with its seeds.

    A prompt's columns are those of `agent_loop`, with `uid` and `__rollout_n__`; `shared` are equal for all.
    """
    partition = "train" if is_training else "val"
    done: set[str] = set()
    try:
        done |= _dispatch(source, prompts, shared, partition)
        missing = [prompt for prompt in prompts if not done.issuperset(_keys(prompt))]
        if missing:
            logger.warning("%d of %d prompts had a failed rollout and are tried again.", len(missing), len(prompts))
            done |= _dispatch(source, [_second(prompt) for prompt in missing], shared, partition)
        wanted: list[str] = []
        failed = []
        for position, prompt in enumerate(prompts):
            keys = next((keys for keys in (_keys(prompt), _keys(_second(prompt))) if done.issuperset(keys)), None)
            if keys is None:
                failed.append(position)
            else:
                wanted += keys
        rows = tq.kv_batch_get(keys=wanted, partition_id=partition, select_fields=list(COLUMNS)) if wanted else None
        return Generated(rows, failed)
    finally:
        if done:
            tq.kv_clear(keys=sorted(done), partition_id=partition)


def _second(prompt: Prompt) -> Prompt:
    return {**prompt, "uid": f"{prompt['uid']}-{SECOND_TRY}"}


def _keys(prompt: Prompt) -> list[str]:
    return [f"{prompt['uid']}_{number}_0" for number in range(prompt["__rollout_n__"])]


def _dispatch(source: RolloutSource, prompts: Sequence[Prompt], shared: Mapping[str, Any], partition: str) -> set[str]:
    """Have the agent loops answer the prompts, and return the keys of the rollouts that came."""
    batch = get_tensordict({name: [prompt[name] for prompt in prompts] for name in prompts[0]})
    assign_non_tensor_data(batch, "global_steps", source.global_steps)
    for name, value in shared.items():
        assign_non_tensor_data(batch, name, value)
    if partition == "val":
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
        return set()
    return set(sampled.keys)
