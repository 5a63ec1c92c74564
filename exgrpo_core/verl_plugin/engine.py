"""The policy engine whose model is in verl's workers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from exgrpo_core.config import ExGRPOConfig, ObjectiveSettings
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.errors import EngineError
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.types import Experience, Float32Array, Int32Array, Question, RolloutGroup, Trajectory, TrajectoryScores
from exgrpo_core.verl_plugin.rows import TokenRow, check_tokens
from exgrpo_core.verl_plugin.trainer import ExperienceTrainer
from exgrpo_core.verl_plugin.update import UpdateTally, update_rows

STATE_FILE = "engine.json"
WORKERS_FOLDER = "workers"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One generated response; `log_probs` are the sampler's, `verdict` the grader's result."""

    token_ids: Int32Array
    log_probs: Float32Array
    reward: float
    is_truncated: bool
    verdict: dict[str, Any]


class VerlEngine:
    """A `PolicyEngine` on verl's agent loop, worker groups and TransferQueue.

    With a `seed` every request has one, which follows from it, the number of the call and the position in it: a
    restored engine draws the same as the saved one would have. Without, requests have none.
    """

    def __init__(
        self,
        trainer: ExperienceTrainer,
        tokenizer: PreTrainedTokenizerBase,
        end_token_ids: Sequence[int],
        config: ExGRPOConfig,
        seed: int | None,
        max_failed_share: float = 0.0,
    ) -> None:
        self.trainer = trainer
        self._tokenizer = tokenizer
        self._end_token_ids = list(end_token_ids)
        self._config = config
        self._seed = seed
        self._max_failed_share = max_failed_share
        self.skips_non_finite = False
        """Leave out mini-batches whose loss or gradient is not finite, as verl's workers do, instead of raising."""
        self._num_rollout_calls = 0
        self._batch_numbers = count()
        self._log_prob_gaps = np.empty(0, dtype=np.float32)

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Return one group a request, each with `num_rollouts` graded trajectories, scored by the training model.

        A group with a rollout that failed twice has none.

        Raises:
            EngineError: A prompt is too long, too many rollouts failed, or token ids changed between processes.
        """
        if not requests:
            return []
        self._num_rollout_calls += 1
        key = f"{self._seed}/{self._num_rollout_calls}"
        config = self._config
        rollouts, failed = self.generate(
            requests, key, config.temperature, config.max_response_tokens, is_training=True
        )
        num_rollouts = [0 if i in failed else request.num_rollouts for i, request in enumerate(requests)]
        questions = [item.question for item, number in zip(requests, num_rollouts, strict=True) for _ in range(number)]
        rows = [
            TokenRow(question.prompt_ids, rollout.token_ids)
            for question, rollout in zip(questions, rollouts, strict=True)
        ]
        scores = self.trainer.score(rows)
        gaps = [np.abs(item.log_probs - new) for item, new in zip(rollouts, scores.log_probs, strict=True)]
        self._log_prob_gaps = np.concatenate(gaps)
        texts = self.decode(rollouts)
        trajectories = iter(
            Trajectory(
                question_index=question.index,
                token_ids=entry.token_ids,
                # Rounding of the logarithm may give a number just above 0.
                log_probs=np.minimum(log_probs, np.float32(0.0)),
                reward=entry.reward,
                text=text,
                verdict=entry.verdict["outcome"],
                is_truncated=entry.is_truncated,
                is_valid=entry.verdict["is_valid"],
                has_code=entry.verdict["has_code"],
                entropies=entropies,
                sampler_log_probs=entry.log_probs.astype(np.float32),
            )
            for question, entry, text, log_probs, entropies in zip(
                questions, rollouts, texts, scores.log_probs, scores.entropies, strict=True
            )
        )
        return [
            RolloutGroup(request.question, list(islice(trajectories, number)))
            for request, number in zip(requests, num_rollouts, strict=True)
        ]

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Score stored trajectories under the current policy at rollout temperature."""
        if not candidates:
            return TrajectoryScores([], [])
        rows = [
            TokenRow(question.prompt_ids, candidate.token_ids)
            for question, candidate in zip(questions, candidates, strict=True)
        ]
        scores = self.trainer.score(rows)
        return TrajectoryScores(scores.log_probs, scores.entropies)

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Take one optimizer step a mini-batch and return `loss/*`, `ratio/*`, `optim/*` and `sampler/*` metrics.

        Raises:
            EngineError: A loss or gradient is not finite and not skipped, or losses saw other values than were sent.
        """
        tally = UpdateTally(self.skips_non_finite)
        for number, mini_batch in enumerate(mini_batches):
            rows = update_rows(mini_batch, objective)
            if objective.kl_coefficient > 0.0:
                rows = [
                    row.with_column("reference_log_probs", values)
                    for row, values in zip(rows, self.trainer.reference_log_probs(rows), strict=True)
                ]
            metrics = self.trainer.train_mini_batch(rows, objective, mini_batch.num_trajectories, mini_batch.num_tokens)
            tally.add(f"mini-batch {number + 1} of {len(mini_batches)}", rows, metrics)
        self.trainer.global_steps += 1
        metrics = tally.metrics()
        if self._log_prob_gaps.size:
            metrics["sampler/log_prob_gap"] = float(self._log_prob_gaps.mean())
            metrics["sampler/log_prob_gap_max"] = float(self._log_prob_gaps.max())
        return metrics

    def describe_prompts(self, requests: Sequence[RolloutRequest], sampling_key: str) -> list[dict[str, Any]]:
        """Return the columns of each prompt that verl's agent loops and graders read."""
        has_seeds = self._seed is not None
        batch = next(self._batch_numbers)
        return [
            {
                "uid": f"{batch}-{position}",
                "index": request.question.index,
                "prompt_token_ids": request.question.prompt_ids.tolist(),
                "sampling_key": f"{sampling_key}/{position}" if has_seeds else "",
                "__rollout_n__": request.num_rollouts,
                **self.describe_question(request.question),
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
        }

    def save(self, directory: Path) -> None:
        """Write verl's sharded checkpoint and the sampler's counter into `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        self.trainer.save(str(directory / WORKERS_FOLDER))
        state = {"num_rollout_calls": self._num_rollout_calls, "num_ranks": self.trainer.num_workers}
        (directory / STATE_FILE).write_text(json.dumps(state) + "\n", encoding="utf-8")

    def restore(self, directory: Path) -> None:
        """Continue exactly as the engine that was saved into `directory`.

        Raises:
            EngineError: It was saved by another number of workers, or is damaged.
        """
        state = _read_state(directory / STATE_FILE)
        if state["num_ranks"] != self.trainer.num_workers:
            raise EngineError(
                f"{directory}: saved by {state['num_ranks']} GPUs, but this run has {self.trainer.num_workers}; "
                "resume on the same number."
            )
        self.trainer.restore(str(directory / WORKERS_FOLDER))
        self._num_rollout_calls = state["num_rollout_calls"]

    def generate(
        self,
        requests: Sequence[RolloutRequest],
        sampling_key: str,
        temperature: float,
        max_new_tokens: int,
        is_training: bool,
    ) -> tuple[list[Rollout], set[int]]:
        """Return the rollouts of all requests, one request after the other, and the positions of those that failed."""
        self._check_prompts(requests)
        prompts = self.describe_prompts(requests, sampling_key)
        shared = self.describe_sampling(temperature, max_new_tokens, is_training)
        generated = self.trainer.generate(prompts, shared, is_training)
        failed = set(generated.failed)
        self._check_failures(requests, failed, self._max_failed_share if is_training else 0.0)
        done = [request for position, request in enumerate(requests) if position not in failed]
        questions = [request.question for request in done for _ in range(request.num_rollouts)]
        for question, prompt_ids in zip(questions, generated.rows["prompts"].unbind(), strict=True):
            check_tokens(f"prompt of question {question.question_id}", question.prompt_ids, prompt_ids)
        return _read_rollouts(generated.rows), failed

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

    def decode(self, rollouts: Sequence[Rollout]) -> list[str]:
        """Return the responses' texts without special tokens."""
        token_ids = [rollout.token_ids.tolist() for rollout in rollouts]
        texts: list[str] = self._tokenizer.batch_decode(token_ids, skip_special_tokens=True)
        return texts


def _read_rollouts(rows: Any) -> list[Rollout]:
    """Return rollouts from the columns that verl's agent loop wrote."""
    columns = [rows[name].unbind() for name in ("responses", "rollout_log_probs", "rm_scores")]
    rollouts = []
    for token_ids, log_probs, scores, extra in zip(*columns, list(rows["extra_fields"]), strict=True):
        verdict = extra.get("reward_extra_info", {"outcome": "", "is_valid": None, "has_code": None})
        rollouts.append(
            Rollout(
                token_ids=token_ids.numpy().astype(np.int32),
                log_probs=log_probs.float().numpy(),
                reward=float(scores.sum()),
                is_truncated=bool(extra["is_truncated"]),
                verdict=verdict,
            )
        )
    return rollouts


def _read_state(path: Path) -> dict[str, int]:
    try:
        content: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: is missing or damaged ({error}); resume from another checkpoint.") from None
    return content
