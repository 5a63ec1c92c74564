"""The policy engine whose model is in verl's workers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.errors import DamagedStateError, EngineError
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch, rows_with_gradient
from exgrpo_core.types import Experience, Float32Array, Int32Array, Question, RolloutGroup, Trajectory, TrajectoryScores
from exgrpo_core.verl_plugin.rollout_queue import clear_rows, fetch_rows
from exgrpo_core.verl_plugin.rows import (
    CHECKSUMS,
    ENTROPIES,
    LOG_PROBS,
    ROLLOUT_COLUMNS,
    STORED_LOG_PROBS,
    KeptRows,
    QueuedRow,
    TokenRow,
    check_tokens,
    read_rollouts,
)
from exgrpo_core.verl_plugin.settings import AGENT_NAME
from exgrpo_core.verl_plugin.trainer import ExperienceTrainer, partition_of
from exgrpo_core.verl_plugin.update import UpdateTally, update_rows

STATE_FILE = "engine.json"
WORKERS_FOLDER = "workers"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One generated response; `log_probs` are the sampler's, `verdict` the grader's result.

    `text` is empty unless the agent loop decodes.
    """

    token_ids: Int32Array
    log_probs: Float32Array
    reward: float
    text: str
    is_truncated: bool
    verdict: dict[str, Any]


class VerlEngine:
    """A `PolicyEngine` on verl's agent loop, worker groups and TransferQueue.

    With a `seed` every request has one, which follows from it, the number of the call and the position in it: a
    restored engine draws the same as the saved one would have. Without, requests have none.
    """

    agent_name = AGENT_NAME
    """The agent loop that answers a prompt."""

    def __init__(
        self,
        trainer: ExperienceTrainer,
        end_token_ids: Sequence[int],
        config: ExGRPOConfig,
        seed: int | None,
        max_failed_share: float = 0.0,
    ) -> None:
        self.trainer = trainer
        self._end_token_ids = list(end_token_ids)
        self._config = config
        self._seed = seed
        self._max_failed_share = max_failed_share
        self.skips_non_finite = False
        """Leave out mini-batches whose loss or gradient is not finite, as verl's workers do, instead of raising."""
        self.has_texts = False
        """Have verl's tokenizer decode each response, for pages."""
        self._num_rollout_calls = 0
        self._is_begun = False
        self._batch_numbers = count()
        self._kept = KeptRows()
        self._log_prob_gaps = np.empty(0, dtype=np.float32)

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Return one group a request, each with `num_rollouts` graded trajectories, scored by the training model.

        A group with a rollout that failed twice has none.

        Raises:
            EngineError: A prompt is too long, too many rollouts failed, or token ids changed between processes.
        """
        if not requests:
            return []
        if not self._is_begun:
            self.begin_rollout(requests)
        self._is_begun = False
        self._num_rollout_calls += 1
        generated = self.trainer.finish()
        rows, failed = generated.rows, set(generated.failed)
        self._check_failures(requests, failed, self._max_failed_share)
        done = [request for i, request in enumerate(requests) if i not in failed]
        questions = [request.question for request in done for _ in range(request.num_rollouts)]
        scored = self.trainer.score(rows)
        sizes = [request.prefix_ids.size for request in done for _ in range(request.num_rollouts)]
        if any(sizes):  # the sampler drew no token of a prefix
            drawn = zip(sizes, scored[LOG_PROBS], scored[STORED_LOG_PROBS], strict=True)
            scored[STORED_LOG_PROBS] = [np.concatenate((own[:size], its[size:])) for size, own, its in drawn]
        rollouts = _checked_rollouts(questions, scored)
        self._kept.add(rows, scored["responses"], scored[LOG_PROBS])
        gaps = np.concatenate(scored[STORED_LOG_PROBS])
        gaps -= np.concatenate(scored[LOG_PROBS])
        self._log_prob_gaps = np.abs(gaps, out=gaps)
        rewards = self.rewards(questions, rollouts)
        trajectories = iter(
            Trajectory(
                question_index=question.index,
                token_ids=entry.token_ids,
                log_probs=log_probs,
                reward=reward,
                text=entry.text,
                verdict=entry.verdict.get("outcome", ""),
                is_truncated=entry.is_truncated,
                is_valid=entry.verdict.get("is_valid"),
                has_code=entry.verdict.get("has_code"),
                entropies=entropies,
                sampler_log_probs=entry.log_probs,
                reward_parts=entry.verdict.get("reward_parts", {}),
            )
            for question, entry, reward, log_probs, entropies in zip(
                questions, rollouts, rewards, scored[LOG_PROBS], scored[ENTROPIES], strict=True
            )
        )
        num_rollouts = [0 if i in failed else request.num_rollouts for i, request in enumerate(requests)]
        return [
            RolloutGroup(request.question, list(islice(trajectories, number)))
            for request, number in zip(requests, num_rollouts, strict=True)
        ]

    def begin_rollout(self, requests: Sequence[RolloutRequest]) -> None:
        """Have the agent loops begin the requests of the next call of `rollout`.

        Raises:
            EngineError: A prompt is too long.
        """
        config, key = self._config, f"{self._seed}/{self._num_rollout_calls + 1}"
        shared = self.describe_sampling(config.temperature, config.max_response_tokens, is_training=True)
        self.trainer.begin(self._checked_prompts(requests, key), shared)
        self._is_begun = True

    def rewards(
        self,
        questions: Sequence[Question],  # noqa: ARG002 - for subclasses
        rollouts: Sequence[Rollout],
    ) -> list[float]:
        """Return the reward of each rollout of training, in order: by default what verl's reward function gave."""
        return [rollout.reward for rollout in rollouts]

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Score stored trajectories under the current policy at rollout temperature."""
        if not candidates:
            return TrajectoryScores([], [])
        rows = [
            TokenRow(question.prompt_ids, candidate.token_ids)
            for question, candidate in zip(questions, candidates, strict=True)
        ]
        scored = self.trainer.score(rows)
        prompts, responses = [row.prompt_ids for row in rows], [row.token_ids for row in rows]
        check_tokens(prompts, responses, scored[CHECKSUMS], lambda position: f"row {position} of {len(rows)}")
        return TrajectoryScores(scored[LOG_PROBS], scored[ENTROPIES])

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Take one optimizer step a mini-batch and return `loss/*`, `ratio/*`, `optim/*` and `generator/*` metrics.

        Raises:
            EngineError: A loss or gradient is not finite and not skipped, or losses saw other values than were sent.
        """
        tally = UpdateTally(self.skips_non_finite)
        for number, mini_batch in enumerate(mini_batches):
            trained = rows_with_gradient(mini_batch, objective)
            rows = update_rows(trained, self._kept)
            if objective.kl_coefficient > 0.0:
                rows = self._with_reference(rows)
            sizes = mini_batch.num_trajectories, mini_batch.num_tokens
            returned, seen = self.trainer.train_mini_batch(rows, objective, *sizes)
            is_applied = tally.add(f"mini-batch {number + 1} of {len(mini_batches)}", trained, returned)
            if seen and is_applied:
                of_rows = (dict(zip(seen, values, strict=True)) for values in zip(*seen.values(), strict=True))
                mini_batch.keep_seen(tally.sums[-1], trained, of_rows)
        self._kept.clear()
        metrics = tally.metrics()
        if self._log_prob_gaps.size:
            metrics["generator/log_prob_gap"] = float(self._log_prob_gaps.mean())
            metrics["generator/log_prob_gap_max"] = float(self._log_prob_gaps.max())
        return metrics

    def describe_prompts(self, requests: Sequence[RolloutRequest], sampling_key: str) -> list[dict[str, Any]]:
        """Return the columns of each prompt that verl's agent loops and graders read."""
        has_seeds = self._seed is not None
        batch = next(self._batch_numbers)
        has_prefixes = any(request.prefix_ids.size for request in requests)
        return [
            {
                **self.describe_question(request.question),
                "uid": f"{batch}-{position}",
                "index": request.question.index,
                "agent_name": self.agent_name,
                "prompt_token_ids": request.question.prompt_ids.tolist(),
                **({"prefix_token_ids": request.prefix_ids.tolist()} if has_prefixes else {}),
                "sampling_key": f"{sampling_key}/{position}" if has_seeds else "",
                "__rollout_n__": request.num_rollouts,
            }
            for position, request in enumerate(requests)
        ]

    def describe_question(self, question: Question) -> dict[str, Any]:
        """Return the columns that verl's graders read: those of the question's row of data."""
        return dict(question.metadata)

    def describe_sampling(self, temperature: float, max_new_tokens: int, is_training: bool) -> dict[str, Any]:
        """Return the columns that are equal for all prompts of a batch."""
        return {
            "sampling_temperature": temperature,
            "max_new_tokens": max_new_tokens,
            "end_token_ids": self._end_token_ids,
            "is_graded": is_training,
            **({"has_text": True} if self.has_texts else {}),
        }

    def save(self, directory: Path) -> None:
        """Write verl's sharded checkpoint and the sampler's counter into `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        self.trainer.save(str(directory / WORKERS_FOLDER))
        self.save_counter(directory)

    def save_counter(self, directory: Path) -> None:
        """Write the sampler's counter alone: the workers' part is saved elsewhere."""
        state = {"num_rollout_calls": self._num_rollout_calls}
        (directory / STATE_FILE).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def restore(self, directory: Path) -> None:
        """Continue as the engine that was saved into `directory`: exactly, or up to rounding on other ranks.

        Raises:
            DamagedStateError: A file differs from what was written; nothing was read.
        """
        folder = directory / WORKERS_FOLDER
        if changed := self.trainer.find_changed(str(folder)):
            raise DamagedStateError(f"{folder / changed[0]}: is missing or differs from what its rank wrote (checksum)")
        self.restore_counter(directory)
        self.trainer.restore(str(folder))

    def restore_counter(self, directory: Path) -> None:
        """Continue the draws of the engine whose counter was saved into `directory`."""
        self._num_rollout_calls = _read_state(directory / STATE_FILE)["num_rollout_calls"]

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampling_key: str,
        temperature: float,
        max_new_tokens: int,
    ) -> list[Rollout]:
        """Return responses that are not to be trained on, one request after the other."""
        prompts = self._checked_prompts(requests, sampling_key)
        shared = self.describe_sampling(temperature, max_new_tokens, is_training=False)
        generated = self.trainer.generate(prompts, shared, is_training=False)
        keys, partition = [row.key for row in generated.rows], partition_of(is_training=False)
        try:
            self._check_failures(requests, set(generated.failed), max_share=0.0)
            questions = [request.question for request in requests for _ in range(request.num_rollouts)]
            return _checked_rollouts(questions, read_rollouts(fetch_rows(keys, ROLLOUT_COLUMNS, partition)))
        finally:
            clear_rows(keys, partition)

    def _checked_prompts(self, requests: Sequence[RolloutRequest], sampling_key: str) -> list[dict[str, Any]]:
        self._check_prompts(requests)
        return self.describe_prompts(requests, sampling_key)

    def _with_reference(self, rows: Sequence[TokenRow | QueuedRow]) -> list[TokenRow | QueuedRow]:
        """Return the rows with log-probs of the initial policy, which workers write where those of this policy are."""
        values = self.trainer.reference_log_probs(rows)
        return [
            replace(row, columns={**row.columns, "reference_log_probs": part})
            for row, part in zip(rows, values, strict=True)
        ]

    def _check_failures(self, requests: Sequence[RolloutRequest], failed: set[int], max_share: float) -> None:
        if len(failed) > max_share * len(requests):
            first = requests[min(failed)].question
            raise EngineError(
                f"rollout: of {len(failed)} of {len(requests)} questions a rollout failed twice, first of question "
                f"{first.question_id}, more than max_failed_share allows ({max_share:.0%} of this call); log.txt "
                "has the errors."
            )

    def _check_prompts(self, requests: Sequence[RolloutRequest]) -> None:
        limit = self._config.max_prompt_tokens
        for request in requests:
            num_tokens = request.question.prompt_ids.size
            if not 1 <= num_tokens <= limit:
                raise EngineError(
                    f"question {request.question.question_id}: the prompt has {num_tokens} tokens, expected 1 to "
                    f"max_prompt_tokens ({limit}); drop the question or raise the limit."
                )


def _checked_rollouts(questions: Sequence[Question], columns: Mapping[str, Sequence[Any]]) -> list[Rollout]:
    """Return rollouts of questions from their columns, one entry a row."""
    prompts = [question.prompt_ids for question in questions]
    received = columns[CHECKSUMS]
    check_tokens(prompts, columns["responses"], received, lambda i: f"question {questions[i].question_id}")
    names = ("responses", STORED_LOG_PROBS, "rewards", "extra_fields")
    return [
        Rollout(
            token_ids=token_ids,
            log_probs=log_probs,
            reward=reward,
            text=extra.get("text", ""),
            is_truncated=bool(extra["is_truncated"]),
            verdict=extra.get("reward_extra_info", {}),
        )
        for token_ids, log_probs, reward, extra in zip(*(columns[name] for name in names), strict=True)
    ]


def _read_state(path: Path) -> dict[str, int]:
    try:
        content: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: is missing or damaged ({error}); resume from another checkpoint.") from None
    return content
