"""The policy engine in one process."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from exgrpo.jobs.tasks.grading.reward_function import Response, RewardFunction, Verdict
from exgrpo.jobs.training.engines.embedded.model import (
    GeneratedResponse,
    PolicyModel,
    decode_texts,
    frozen_reference,
    generate,
    score_sequences,
)
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo.jobs.training.engines.embedded.state_files import check_saved_model, restore_engine, save_engine
from exgrpo.jobs.training.engines.embedded.update import OptimSettings, PolicyOptimizer, PolicyUpdater
from exgrpo.jobs.training.pretrained.model_shapes import longrope_refusal
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import RolloutRequest, describe_misfit
from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.process_memory import FreedMemory
from exgrpo_core.types import Experience, Int32Array, Question, RolloutGroup, Trajectory, TrajectoryScores


class EmbeddedEngine:
    """A `PolicyEngine` that holds model, sampler and optimizer in this process.

    With a KL penalty it keeps the policy as it is given, of one with adapters its frozen weights: make the engine from
    the initial weights, then `restore`. Rollouts draw from a generator of `seed` whose state is saved;
    nothing else is random.
    """

    def __init__(
        self,
        policy: PolicyModel,
        reward: RewardFunction,
        config: ExGRPOConfig,
        optim: OptimSettings,
        seed: int,
        keeps_seen: bool = False,
    ) -> None:
        """Drive `policy`; `keeps_seen` is that of `PolicyUpdater`.

        Raises:
            EngineError: The model's context is shorter than prompt and response may be.
        """
        _check_context(policy, config)
        self.policy = policy
        self._reward = reward
        self._config = config
        self._is_save_checked = False
        self._optimizer = PolicyOptimizer(policy.model, optim)
        self._generator = torch.Generator(policy.device).manual_seed(seed)
        reference = frozen_reference(policy) if config.kl_coefficient > 0.0 else None
        self._updater = PolicyUpdater(policy, self._optimizer, config.temperature, reference, keeps_seen=keeps_seen)
        self._freed_memory = FreedMemory()

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Return one group a request, each with `num_rollouts` graded trajectories.

        Raises:
            EngineError: A prompt is longer than `max_prompt_tokens`.
        """
        questions = [request.question for request in requests for _ in range(request.num_rollouts)]
        prefixes = [request.prefix_ids for request in requests for _ in range(request.num_rollouts)]
        generated = self._continue(questions, prefixes)
        responses = self._responses(generated)
        verdicts = self._reward.grade(questions, responses)
        parts = zip(questions, generated, responses, verdicts, strict=True)
        trajectories = iter([_trajectory(*part) for part in parts])
        return [
            RolloutGroup(request.question, list(islice(trajectories, request.num_rollouts))) for request in requests
        ]

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Score stored trajectories under the current policy at rollout temperature."""
        sequences = [
            TokenSequence(question.prompt_ids, candidate.token_ids)
            for question, candidate in zip(questions, candidates, strict=True)
        ]
        return score_sequences(self.policy, sequences, self._config.temperature)

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Take one optimizer step a mini-batch and return `loss/*`, `ratio/*`, `optim/*` and `generator/*` metrics.

        Raises:
            EngineError: A loss or gradient is not finite.
        """
        metrics = self._updater.update(mini_batches, objective)
        self._freed_memory.give_back()
        return metrics

    def imitate(self, demonstrations: Sequence[TokenSequence]) -> dict[str, float]:
        """Take one optimizer step towards demonstrations (SFT) and return `loss/sft` and `optim/*` metrics.

        Raises:
            EngineError: The loss or gradient is not finite.
        """
        metrics = self._updater.imitate(demonstrations)
        self._freed_memory.give_back()
        return metrics

    def generate_for_evaluation(
        self, questions: Sequence[Question], num_samples: int, temperature: float, max_new_tokens: int, seed: int
    ) -> list[list[Response]]:
        """Return `num_samples` responses a question, drawn with `seed` alone; temperature 0 is greedy.

        Raises:
            EngineError: A prompt is longer than `max_prompt_tokens`.
        """
        repeated = [question for question in questions for _ in range(num_samples)]
        sampler = Sampler(temperature, torch.Generator(self.policy.device).manual_seed(seed))
        responses = self._responses(self._generate(repeated, max_new_tokens, sampler))
        return [responses[start : start + num_samples] for start in range(0, len(responses), num_samples)]

    def save(self, directory: Path) -> None:
        """Write model, tokenizer, optimizer and sampler into `directory`."""
        save_engine(directory, self.policy, self._optimizer, self._generator)
        if not self._is_save_checked:
            check_saved_model(directory, self.policy)
            self._is_save_checked = True

    def restore(self, directory: Path) -> None:
        """Continue exactly as the engine that was saved into `directory`.

        Raises:
            EngineError: A file is missing or damaged, or belongs to another model.
        """
        restore_engine(directory, self.policy, self._optimizer, self._generator)

    def _continue(self, questions: Sequence[Question], prefixes: Sequence[Int32Array]) -> list[GeneratedResponse]:
        """Return responses of training that begin with their prefixes, whose tokens are scored with the others."""
        generated: dict[int, GeneratedResponse] = {}
        for size in sorted({prefix.size for prefix in prefixes}):
            places = [i for i, prefix in enumerate(prefixes) if prefix.size == size]
            sampler = Sampler(self._config.temperature, self._generator)
            begun = [prefixes[i] for i in places] if size else ()
            max_new_tokens = self._config.max_response_tokens - size
            responses = self._generate([questions[i] for i in places], max_new_tokens, sampler, begun)
            generated |= zip(places, responses, strict=True)
        begun_at = [i for i in sorted(generated) if prefixes[i].size]
        if not begun_at:
            return [generated[i] for i in range(len(questions))]
        wholes = [np.concatenate((prefixes[i], generated[i].token_ids)) for i in begun_at]
        sequences = [TokenSequence(questions[i].prompt_ids, ids) for i, ids in zip(begun_at, wholes, strict=True)]
        scores = score_sequences(self.policy, sequences, self._config.temperature)
        for i, ids, log_probs, entropies in zip(begun_at, wholes, scores.log_probs, scores.entropies, strict=True):
            generated[i] = GeneratedResponse(ids, log_probs, entropies, generated[i].is_truncated)
        return [generated[i] for i in range(len(questions))]

    def _generate(
        self,
        questions: Sequence[Question],
        max_new_tokens: int,
        sampler: Sampler,
        prefixes: Sequence[Int32Array] = (),
    ) -> list[GeneratedResponse]:
        prompts = ((f"question {question.question_id}", question.prompt_ids.size) for question in questions)
        if misfit := describe_misfit(prompts, self._config.max_prompt_tokens):
            raise EngineError(f"{misfit}; drop the question or raise max_prompt_tokens.")
        read = [question.prompt_ids for question in questions]
        if prefixes:
            read = [np.concatenate(pair) for pair in zip(read, prefixes, strict=True)]
        return generate(self.policy, read, max_new_tokens, sampler)

    def _responses(self, generated: Sequence[GeneratedResponse]) -> list[Response]:
        if not generated:
            return []
        texts = decode_texts(self.policy, generated)
        return [Response(text, item.token_ids, item.is_truncated) for text, item in zip(texts, generated, strict=True)]


def _trajectory(question: Question, generated: GeneratedResponse, response: Response, verdict: Verdict) -> Trajectory:
    return Trajectory(
        question_index=question.index,
        token_ids=generated.token_ids,
        log_probs=generated.log_probs,
        reward=verdict.reward,
        text=response.text,
        verdict=verdict.outcome,
        is_truncated=generated.is_truncated,
        is_valid=verdict.is_valid,
        has_code=verdict.has_code,
        entropies=generated.entropies,
        reward_parts=verdict.parts,
    )


def _check_context(policy: PolicyModel, config: ExGRPOConfig) -> None:
    needed = config.max_prompt_tokens + config.max_response_tokens
    if policy.rope_border is not None and policy.rope_border < needed:
        raise EngineError(longrope_refusal(policy.source, policy.rope_border, needed), "model.source")
    if policy.context_tokens is not None and policy.context_tokens < needed:
        raise EngineError(
            f"{policy.source} has a context of {policy.context_tokens} tokens, but max_prompt_tokens + "
            f"max_response_tokens is {needed}; lower them or choose a model with a longer context.",
            "model.source",
        )
