"""Answers from this project's own engine."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from exgrpo_core.types import Int32Array
from jobs.engines.embedded.generation import generate
from jobs.engines.embedded.model import PolicyModel
from jobs.engines.embedded.sampling import Sampler
from jobs.evaluation.generation import PromptedQuestion, Sample, SampledQuestion
from jobs.runs.control import TrainingError
from jobs.tasks.questions import encode_prompt
from jobs.training.templates import render_chat_prompt


class EmbeddedGenerator:
    """Samples a whole batch with one generator, so that its rows are decoded together."""

    num_at_once = 0

    def __init__(self, policy: PolicyModel, max_response_tokens: int) -> None:
        self._policy = policy
        self._max_response_tokens = max_response_tokens

    def generate(
        self, batch: Sequence[PromptedQuestion], wanted: frozenset[str], num_samples: int, seed: int
    ) -> Iterator[SampledQuestion]:
        """Yield the wanted questions' answers; the whole batch is drawn, so that a part gets what the whole got.

        Raises:
            TrainingError: A prompt and its answer do not fit into the model's context.
        """
        prompts = [self._encode(question) for question in batch]
        repeated = [prompt for prompt in prompts for _ in range(num_samples)]
        sampler = Sampler(batch[0].temperature, torch.Generator(self._policy.device).manual_seed(seed))
        generated = generate(self._policy, repeated, self._max_response_tokens, sampler)
        texts = self._policy.tokenizer.batch_decode(
            [entry.token_ids.tolist() for entry in generated], skip_special_tokens=True
        )
        samples = [
            Sample(text, item.token_ids.size, item.is_truncated, float(item.log_probs.sum()))
            for text, item in zip(texts, generated, strict=True)
        ]
        for index, question in enumerate(batch):
            if question.question_id in wanted:
                answers = samples[index * num_samples : (index + 1) * num_samples]
                yield SampledQuestion(question.question_id, seed, answers)

    def close(self) -> None:
        """Do nothing: the process ends and frees the model."""

    def _encode(self, question: PromptedQuestion) -> Int32Array:
        tokenizer = self._policy.tokenizer
        if question.prompt_text is None:
            ids = encode_prompt(tokenizer, render_chat_prompt(question.messages, tokenizer))
        else:
            ids = encode_prompt(tokenizer, question.prompt_text, adds_special_tokens=True)
        limit = self._policy.context_tokens
        if limit is not None and len(ids) + self._max_response_tokens > limit:
            raise TrainingError(
                f"question {question.question_id}: prompt ({len(ids)} tokens) and max_response_tokens "
                f"({self._max_response_tokens}) do not fit into the model's context of {limit}; lower "
                "max_response_tokens."
            )
        if not ids:
            raise TrainingError(f"question {question.question_id}: the prompt has no tokens.")
        return np.asarray(ids, dtype=np.int32)
