"""Made-up agent loops and workers of verl on the real TransferQueue: rows of random tokens, scores and updates.

They are one process of Ray. Time of the driver and of TransferQueue's processes is counted while that process does not
work for them.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import ray
import torch
import transfer_queue as tq
from numpy.typing import NDArray
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from exgrpo_core.verl_plugin.loss import BEHAVIOR_SUM
from exgrpo_core.verl_plugin.rows import LOG_PROBS, PARTITION, STORED_LOG_PROBS
from exgrpo_core.verl_plugin.trainer import ExperienceTrainer
from exgrpo_core.verl_plugin.update import SUM_NAMES
from jobs.tasks.chains.tokenizer import make_tokenizer

NUM_RANKS = 8
"""Data-parallel ranks that rows are balanced over."""
VOCABULARY = 50
CORRECT_SHARE = 0.4
_PROMPTS_PER_PUT = 64

Row = dict[str, Any]


class MadeUpProcess:
    """Puts and gets rows as verl's agent loops and workers do; in place of both."""

    def __init__(self) -> None:
        tq.init()
        self._rng = np.random.default_rng(1)
        self._tokenizer = make_tokenizer()

    def generate(self, prompts: Any, num_tokens: int) -> None:
        """Put K rollouts of each prompt under the keys of verl's agent loop, and mark the prompts as finished."""
        uids = list(prompts["uid"])
        for start in range(0, len(uids), _PROMPTS_PER_PUT):
            part = prompts[start : start + _PROMPTS_PER_PUT]
            rollouts = [self._rollout(prompt, i, num_tokens) for prompt in _rows(part) for i in range(_k(prompt))]
            keys, rows = zip(*rollouts, strict=True)
            tags = [{"status": "success", "seq_len": row["input_ids"].numel()} for row in rows]
            tq.kv_batch_put(
                keys=list(keys), partition_id=PARTITION, fields=list_of_dict_to_tensordict(list(rows)), tags=tags
            )
        tq.kv_batch_put(keys=uids, partition_id=PARTITION, tags=[{"status": "finished"}] * len(uids))

    def score(self, meta: Any) -> Any:
        """Put a log-prob and an entropy for every token of the rows."""
        rows = tq.kv_batch_get_by_meta(meta, select_fields=list(meta.fields))["input_ids"].unbind()
        columns = {name: [torch.rand(row.numel()) for row in rows] for name in ("log_probs", "entropy")}
        fields = {
            "log_probs": torch.nested.as_nested_tensor([-part for part in columns["log_probs"]], layout=torch.jagged),
            "entropy": torch.nested.as_nested_tensor(columns["entropy"], layout=torch.jagged),
        }
        tq.kv_batch_put(
            keys=meta.keys, partition_id=meta.partition_id, fields=TensorDict(fields, batch_size=[len(rows)])
        )
        return meta

    def update(self, meta: Any) -> dict[str, list[float]]:
        """Return sums as the loss does of the rows."""
        rows = tq.kv_batch_get_by_meta(meta, select_fields=list(meta.fields))
        sums = dict.fromkeys((*SUM_NAMES, "grad_norm"), 0.1) | {
            "num_replayed": 0.0,
            "num_fresh": 0.0,
            BEHAVIOR_SUM: 0.0,
        }
        names = ("response_mask", "is_replayed", "is_behavior_stored", STORED_LOG_PROBS, LOG_PROBS)
        for mask, is_replayed, is_stored, stored, scored in zip(*(rows[name].unbind() for name in names), strict=True):
            behavior = stored if is_stored else scored[-mask.numel() - 1 : -1]
            sums["num_replayed" if is_replayed else "num_fresh"] += float(mask.sum())
            sums[BEHAVIOR_SUM] += float((behavior.double() * mask).sum())
        return {name: [value] for name, value in sums.items()}

    def _rollout(self, prompt: Row, number: int, mean_tokens: int) -> tuple[str, Row]:
        num_tokens = int(self._rng.integers(mean_tokens // 2, 3 * mean_tokens // 2)) + 1
        prompt_ids = torch.tensor(prompt["prompt_token_ids"])
        response = torch.from_numpy(self._rng.integers(3, VOCABULARY, num_tokens))
        mask = torch.ones_like(response)
        rewards = torch.zeros(num_tokens)
        rewards[-1] = float(self._rng.random() < CORRECT_SHARE)
        text = self._tokenizer.decode(response, skip_special_tokens=True)
        verdict = {"outcome": "correct" if rewards[-1] else "wrong", "is_valid": None, "has_code": None}
        row = {
            **prompt,
            "prompts": prompt_ids,
            "responses": response,
            "response_mask": mask,
            STORED_LOG_PROBS: -torch.rand(num_tokens),
            "rm_scores": rewards,
            "extra_fields": {"is_truncated": False, "text": text, "reward_extra_info": verdict},
            "loss_mask": mask,
            "input_ids": torch.cat([prompt_ids, response]),
            "position_ids": torch.arange(prompt_ids.numel() + num_tokens),
        }
        return f"{prompt['uid']}_{number}_0", row


def _rows(prompts: Any) -> list[Row]:
    """Return the columns of each prompt, as verl's agent loop worker takes them out of its batch."""
    items = list(prompts.items())
    return [
        {name: value[i].data if isinstance(value, NonTensorStack) else value.data for name, value in items}
        for i in range(len(prompts))
    ]


def _k(prompt: Mapping[str, Any]) -> int:
    return int(prompt["__rollout_n__"])


class DriverClock:
    """Seconds that pass, and CPU seconds of this process and of TransferQueue's, while the clock runs."""

    def __init__(self) -> None:
        children = psutil.Process().children(recursive=True)
        self._left_out = np.zeros(2)
        self._processes = [psutil.Process(), *(item for item in children if _is_of_queue(item))]

    def read(self) -> NDArray[np.float64]:
        """Return seconds and CPU seconds so far, (2,)."""
        times = [process.cpu_times() for process in self._processes]
        return np.array([time.perf_counter(), sum(item.user + item.system for item in times)]) - self._left_out

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Count nothing inside the block."""
        before = self.read()
        yield
        self._left_out = self._left_out + self.read() - before


def _is_of_queue(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it has ended
        return any(name in " ".join(process.cmdline()) for name in ("TransferQueueController", "StorageUnit"))
    return False


class MadeUpWork:
    """Takes the place of verl's agent loops and worker groups, and stops the clock while they work."""

    def __init__(self, num_tokens: int, clock: DriverClock) -> None:
        self._process = ray.remote(MadeUpProcess).remote()
        self._num_tokens = num_tokens
        self._clock = clock

    def generate_sequences(self, prompts: Any) -> None:
        """Answer the prompts."""
        with self._clock.stopped():
            ray.get(self._process.generate.remote(prompts, self._num_tokens))

    def compute_log_prob(self, meta: Any) -> Any:
        """Score rows."""
        with self._clock.stopped():
            return ray.get(self._process.score.remote(meta))

    def update_actor(self, meta: Any) -> dict[str, Any]:
        """Return the sums of a loss."""
        with self._clock.stopped():
            return {"metrics": ray.get(self._process.update.remote(meta))}

    def close(self) -> None:
        """End the process."""
        ray.kill(self._process)

    def set_loss_fn(self, loss: Callable[..., Any]) -> None:
        """Take the loss, and do without."""


def made_up_trainer(work: MadeUpWork) -> ExperienceTrainer:
    """Return this project's trainer with verl's replay buffer, without workers."""
    trainer = ExperienceTrainer.__new__(ExperienceTrainer)
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"temperature": 1.0}}})
    trainer.actor_rollout_wg = trainer.agent_loop_manager = work
    trainer.checkpoint_manager = SimpleNamespace(update_weights=lambda _: None, sleep_replicas=lambda: None)
    trainer.replay_buffer = ReplayBuffer("sync", OmegaConf.create({}), None, "drop", OmegaConf.create({}))
    trainer.global_steps = 0
    trainer.num_ranks = NUM_RANKS
    trainer._is_awake = False
    trainer._objective = None
    return trainer


class PassedBytes:
    """Bytes that this process puts into TransferQueue and gets out of it, while open."""

    def __init__(self, clock: DriverClock) -> None:
        self._clock = clock
        self.tokens = 0
        """Of columns with one value a token."""
        self.others = 0
        """Of keys, tags and all other columns."""

    def __enter__(self) -> "PassedBytes":
        self._kept = {name: getattr(tq, name) for name in ("kv_batch_put", "kv_batch_get", "kv_list", "kv_clear")}
        for name, function in self._kept.items():
            setattr(tq, name, self._counting(function))
        return self

    def __exit__(self, *_error: object) -> None:
        for name, function in self._kept.items():
            setattr(tq, name, function)

    def _counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            with self._clock.stopped():
                for item in (*arguments, *named.values(), result):
                    self._count(item)
            return result

        return counted

    def _count(self, item: Any) -> None:
        if not isinstance(item, TensorDict):
            self.others += len(ray.cloudpickle.dumps(item))
            return
        for column in item.values():
            if isinstance(column, torch.Tensor):
                values = column.values() if column.is_nested else column
                is_of_tokens = column.is_nested or column.dim() > 1
                num_bytes = values.numel() * values.element_size()
                self.tokens += num_bytes * is_of_tokens
                self.others += num_bytes * (not is_of_tokens)
            else:
                self.others += len(ray.cloudpickle.dumps(column.tolist()))
