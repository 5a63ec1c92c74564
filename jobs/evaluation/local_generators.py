"""Answers from a model in this process: by this project's own engine, or by vLLM where it is installed."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from exgrpo.jobs.evaluation.generation import (
    PromptedQuestion,
    Sample,
    SampledQuestion,
    derive_seed,
    num_asked,
    repeat_greedy,
)
from exgrpo.jobs.machine.engine_environments import VLLM_VARIABLES
from exgrpo.jobs.machine.hardware import list_gpus
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.specs.base import numpy_seed
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.tasks.questions import encode_prompt
from exgrpo.jobs.training.engines.embedded.model import PolicyModel, decode_texts, generate
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo.jobs.training.templates import PromptTokenizer, render_chat_prompt
from exgrpo_core.types import Int32Array
from exgrpo_core.verl_plugin.settings import NO_STATISTICS


class EmbeddedGenerator:
    """Decodes a batch together; each sample draws by a seed of its own."""

    num_at_once = 0

    def __init__(self, policy: PolicyModel, max_response_tokens: int) -> None:
        self._policy = policy
        self._max_response_tokens = max_response_tokens

    def generate(
        self, batch: Sequence[PromptedQuestion], wanted: frozenset[str], num_samples: int, seed: int
    ) -> Iterator[SampledQuestion]:
        """Yield the wanted questions' answers.

        Raises:
            TrainingError: A prompt and its answer do not fit into the model's context.
        """
        asked = [question for question in batch if question.question_id in wanted]
        seeds = [derive_seed(seed, question.question_id) for question in asked]
        repeated = [prompt for prompt in map(self._encode, asked) for _ in range(num_samples)]
        sampler = self._sampler(batch[0].temperature, seeds, num_samples)
        generated = generate(self._policy, repeated, self._max_response_tokens, sampler)
        texts = decode_texts(self._policy, generated)
        samples = [
            Sample(text, item.token_ids.size, item.is_truncated, float(item.log_probs.sum()))
            for text, item in zip(texts, generated, strict=True)
        ]
        for index, (question, question_seed) in enumerate(zip(asked, seeds, strict=True)):
            answers = samples[index * num_samples : (index + 1) * num_samples]
            yield SampledQuestion(question.question_id, question_seed, answers)

    def _sampler(self, temperature: float, seeds: Sequence[int], num_samples: int) -> Sampler:
        generator = torch.Generator(self._policy.device)
        if temperature == 0.0:
            return Sampler(temperature, generator)
        rows = [derive_seed(seed, str(number)) for seed in seeds for number in range(num_samples)]
        points = [torch.rand(self._max_response_tokens, generator=torch.Generator().manual_seed(row)) for row in rows]
        return Sampler(temperature, generator, torch.stack(points).to(self._policy.device))

    def close(self) -> None:
        """Do nothing: the process ends and frees the model."""

    def _encode(self, question: PromptedQuestion) -> Int32Array:
        ids = encode_question(question, self._policy.tokenizer)
        limit = self._policy.limit_after(len(ids))
        if limit is not None and len(ids) + self._max_response_tokens > limit:
            raise TrainingError(
                f"question {question.question_id}: prompt ({len(ids)} tokens) and max_response_tokens "
                f"({self._max_response_tokens}) do not fit into the model's context of {limit}; lower "
                "max_response_tokens."
            )
        if not ids:
            raise TrainingError(f"question {question.question_id}: the prompt has no tokens.")
        return np.asarray(ids, dtype=np.int32)


def encode_question(question: PromptedQuestion, tokenizer: PromptTokenizer) -> list[int]:
    """Return the token ids of a text to continue, or of messages in the model's chat template.

    Raises:
        FieldError: The chat template cannot be used.
    """
    if question.prompt_text is None:
        return encode_prompt(tokenizer, render_chat_prompt(question.messages, tokenizer))
    return encode_prompt(tokenizer, question.prompt_text, adds_special_tokens=True)


def vllm_prompts(questions: Sequence[PromptedQuestion], tokenizer: PromptTokenizer) -> list[dict[str, list[int]]]:
    """Return prompts as token ids for vLLM.

    The chat template runs here and not in vLLM, which sets it no limits of time and memory, and would let the tokenizer
    put its end token behind a text.

    Raises:
        TrainingError: The chat template cannot be used.
    """
    try:
        return [{"prompt_token_ids": encode_question(question, tokenizer)} for question in questions]
    except ValueError as error:
        raise TrainingError(str(error)) from error


class VllmGenerator:
    """Gives vLLM a batch of questions with one seed each."""

    num_at_once = 4096

    def __init__(self, source: str, spec: EvalSpec) -> None:
        """Load the model.

        Raises:
            TrainingError: vLLM is not installed.
        """
        os.environ.setdefault(NO_STATISTICS, "1")
        # PyTorch would ask CUDA, after which no process that vLLM forks can use it.
        if not list_gpus():
            for name, value in VLLM_VARIABLES.items():
                os.environ.setdefault(name, value)
        try:
            from vllm import LLM
        except ImportError as error:
            raise TrainingError(
                f"generator: vLLM is not installed ({error}); use embedded, or a server that `vllm serve` runs."
            ) from error
        # Log-probs at the sampling temperature, as the embedded engine gives them.
        self._model: Any = LLM(
            model=source, revision=spec.model.revision, seed=numpy_seed(spec.seed), trust_remote_code=False,
            logprobs_mode="processed_logprobs", tensor_parallel_size=spec.num_gpus, max_model_len=spec.context_tokens,
        )  # fmt: skip
        self._spec = spec

    def generate(
        self, batch: Sequence[PromptedQuestion], wanted: frozenset[str], num_samples: int, seed: int
    ) -> Iterator[SampledQuestion]:
        """Yield the wanted questions' answers."""
        questions = [question for question in batch if question.question_id in wanted]
        if not questions:
            return
        seeds = [derive_seed(seed, question.question_id) for question in questions]
        settings = self.sampling_settings(questions, seeds, num_samples)
        outputs = self._model.generate(vllm_prompts(questions, self._model.get_tokenizer()), settings)
        for question, question_seed, output in zip(questions, seeds, outputs, strict=True):
            samples = [
                Sample(answer.text, len(answer.token_ids), answer.finish_reason == "length", answer.cumulative_logprob)
                for answer in output.outputs
            ]
            yield SampledQuestion(question.question_id, question_seed, repeat_greedy(samples, num_samples))

    def sampling_settings(
        self, questions: Sequence[PromptedQuestion], seeds: Sequence[int], num_samples: int
    ) -> list[Any]:
        """Return vLLM's settings of each question: log-probs of sampled tokens, and think tags in the text."""
        from vllm import SamplingParams

        return [
            SamplingParams(
                n=num_asked(question, num_samples),
                temperature=question.temperature,
                top_p=self._spec.top_p,
                max_tokens=self._spec.max_response_tokens,
                seed=seed,
                logprobs=0,
                skip_special_tokens=False,
            )
            for question, seed in zip(questions, seeds, strict=True)
        ]

    def close(self) -> None:
        """Free the model."""
        del self._model
