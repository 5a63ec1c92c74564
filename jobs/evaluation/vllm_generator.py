"""Answers from vLLM inside this process, where it is installed."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from jobs.evaluation.generation import PromptedQuestion, Sample, SampledQuestion, derive_seed
from jobs.machine.engine_environments import VLLM_VARIABLES
from jobs.runs.control import TrainingError
from jobs.specs.base import numpy_seed
from jobs.specs.evaluation import EvalSpec
from jobs.tasks.questions import encode_prompt
from jobs.training.templates import PromptTokenizer, render_chat_prompt


def vllm_prompts(questions: Sequence[PromptedQuestion], tokenizer: PromptTokenizer) -> list[str | dict[str, list[int]]]:
    """Return prompts as vLLM takes them: texts, and for messages the token ids of the model's chat template.

    The template runs here and not in vLLM, which sets it no limits of time and memory.

    Raises:
        TrainingError: The chat template cannot be used.
    """
    try:
        return [
            {"prompt_token_ids": encode_prompt(tokenizer, render_chat_prompt(question.messages, tokenizer))}
            if question.prompt_text is None
            else question.prompt_text
            for question in questions
        ]
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
        import torch

        if not torch.cuda.is_available():
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
            logprobs_mode="processed_logprobs",
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
            yield SampledQuestion(question.question_id, question_seed, samples)

    def sampling_settings(
        self, questions: Sequence[PromptedQuestion], seeds: Sequence[int], num_samples: int
    ) -> list[Any]:
        """Return vLLM's settings of each question, with the log-prob of each sampled token asked for."""
        from vllm import SamplingParams

        return [
            SamplingParams(
                n=num_samples,
                temperature=question.temperature,
                top_p=self._spec.top_p,
                max_tokens=self._spec.max_response_tokens,
                seed=seed,
                logprobs=0,
            )
            for question, seed in zip(questions, seeds, strict=True)
        ]

    def close(self) -> None:
        """Free the model."""
        del self._model
