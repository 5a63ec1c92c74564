"""Made-up agent loops and workers of verl on the real TransferQueue: rows of random tokens, scores and updates.

They are one process of Ray. Time of the driver and of TransferQueue's processes is counted while that process does not
work for them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from exgrpo_core.verl_plugin.blocks import (
    TRAINED_COLUMNS,
    Answer,
    Block,
    JoinedRows,
    answer_scored,
    fetch_queued,
    put_log_probs,
    read_block,
)
from exgrpo_core.verl_plugin.rows import ENTROPIES, LOG_PROBS, PARTITION, ROLLOUT_COLUMNS, STORED_LOG_PROBS
from exgrpo_core.verl_plugin.trainer import ExperienceTrainer
from exgrpo_core.verl_plugin.update import BEHAVIOR_SUM, SUM_NAMES
from jobs.tasks.chains.demonstrators import make_tokenizer

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

    def score(self, block: Block) -> Answer:
        """Answer with a log-prob and an entropy for every token of the rows."""
        queued = fetch_queued(block, ROLLOUT_COLUMNS)
        batch = read_block(block, queued)
        lengths = [len(row) for row in batch["input_ids"].unbind()]
        columns = {
            name: torch.nested.as_nested_tensor([-torch.rand(length) for length in lengths], layout=torch.jagged)
            for name in (LOG_PROBS, ENTROPIES)
        }
        put_log_probs(block, columns[LOG_PROBS])
        return answer_scored(block, batch, TensorDict(columns, batch_size=[len(lengths)]), queued)

    def update(self, block: Block) -> dict[str, float]:
        """Return sums as the loss does of the rows."""
        rows = read_block(block, fetch_queued(block, TRAINED_COLUMNS), (LOG_PROBS, STORED_LOG_PROBS))
        sums = {"num_replayed": 0.0, "num_fresh": 0.0, BEHAVIOR_SUM: 0.0}
        names = ("response_mask", "is_replayed", "is_behavior_stored", STORED_LOG_PROBS, LOG_PROBS)
        for mask, is_replayed, is_stored, stored, scored in zip(*(rows[name].unbind() for name in names), strict=True):
            behavior = stored if is_stored else scored[-mask.numel() - 1 : -1]
            sums["num_replayed" if is_replayed else "num_fresh"] += float(mask.sum())
            sums[BEHAVIOR_SUM] += float((behavior.double() * mask).sum())
        return sums

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

    def __init__(self, num_tokens: int, num_ranks: int, clock: DriverClock) -> None:
        self._process = ray.remote(MadeUpProcess).remote()
        self._num_tokens = num_tokens
        self._clock = clock
        self._dispatch_info = {"actor": list(range(num_ranks))}

    def generate_sequences(self, prompts: Any) -> None:
        """Answer the prompts."""
        with self._clock.stopped():
            ray.get(self._process.generate.remote(prompts, self._num_tokens))

    def score_block(self, blocks: list[Block]) -> list[Answer]:
        """Score the rows of all ranks."""
        return self.answer("score", blocks)

    def train_block(self, blocks: list[Block]) -> list[dict[str, Any]]:
        """Return the sums of a loss over all ranks."""
        answers = self.answer("update", blocks)
        sums = {name: [sum(answer[name] for answer in answers)] for name in answers[0]}
        return [{name: [0.1] for name in (*SUM_NAMES, "grad_norm")} | sums]

    def answer(self, method: str, blocks: list[Block]) -> list[Any]:
        """Return the process's answer to each rank's block."""
        sent = [ray.put(block) for block in blocks]
        with self._clock.stopped():
            answers = [getattr(self._process, method).remote(block) for block in sent]
            ray.wait(answers, num_returns=len(answers))
        return list(ray.get(answers))

    def close(self) -> None:
        """End the process."""
        ray.kill(self._process)

    def set_loss_fn(self, loss: Callable[..., Any]) -> None:
        """Take the loss, and do without."""


def made_up_trainer(work: MadeUpWork) -> ExperienceTrainer:
    """Return this project's trainer without workers."""
    trainer = ExperienceTrainer.__new__(ExperienceTrainer)
    trainer.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"temperature": 1.0}}})
    trainer.actor_rollout_wg = trainer.agent_loop_manager = work
    trainer.checkpoint_manager = SimpleNamespace(update_weights=lambda _: None, sleep_replicas=lambda: None)
    trainer.global_steps = 0
    trainer._has_weights = False
    trainer._objective = None
    return trainer


class PassedBytes:
    """Bytes that this process exchanges with TransferQueue and with workers, while open."""

    def __init__(self, clock: DriverClock) -> None:
        self._clock = clock
        self.tokens = 0
        """Of columns with one value a token."""
        self.others = 0
        """Of keys, tags and all other columns."""

    def __enter__(self) -> "PassedBytes":
        names = ("kv_batch_put", "kv_batch_get", "kv_list", "kv_clear")
        calls = [(tq, name, self._count_call) for name in names] + [(MadeUpWork, "answer", self._count_blocks)]
        self._kept = [(target, name, getattr(target, name)) for target, name, _ in calls]
        for target, name, count in calls:
            setattr(target, name, self._counting(getattr(target, name), count))
        return self

    def __exit__(self, *_error: object) -> None:
        for target, name, function in self._kept:
            setattr(target, name, function)

    def _counting(self, function: Callable[..., Any], count: Callable[..., None]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            with self._clock.stopped():
                count(result, *arguments, **named)
            return result

        return counted

    def _count_call(self, result: Any, *arguments: Any, **named: Any) -> None:
        self.others += len(ray.cloudpickle.dumps((result, arguments, named)))

    def _count_blocks(
        self, answers: Sequence[Answer], _work: MadeUpWork, _method: str, blocks: Sequence[Block]
    ) -> None:
        for block in blocks:
            self._count_columns([block.keys, *block.whole.values(), *block.columns.values()])
        for answer in answers:
            self._count_columns(answer.values())

    def _count_columns(self, columns: Iterable[Any]) -> None:
        for column in columns:
            if isinstance(column, JoinedRows):
                is_of_tokens = column.values.size != column.lengths.size
                self.tokens += column.values.nbytes * is_of_tokens
                self.others += column.values.nbytes * (not is_of_tokens) + column.lengths.nbytes
            else:
                self.others += len(ray.cloudpickle.dumps(column))
