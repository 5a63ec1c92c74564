"""From graded answers to what is recorded of a benchmark: its scores, and means of the components of a reward."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exgrpo_core.types import Question
from jobs.evaluation.answer_log import AnsweredQuestion
from jobs.evaluation.benchmark_questions import BenchmarkQuestion, LoadedBenchmark
from jobs.grading.answer_grader import Scheme, grader_version
from jobs.grading.reward_function import Grade, Response, Verdict
from jobs.specs.evaluation import EvalSpec
from jobs.training.reward_parts import RewardParts

_NO_TOKENS = np.empty(0, dtype=np.int32)


def comparability(spec: EvalSpec, benchmark: LoadedBenchmark) -> dict[str, Any]:
    """Return all that two scores have to share to be compared: data, template, grader and sampling."""
    return {
        "data_hash": benchmark.data_hash,
        "template": benchmark.template(spec),
        "grader_version": grader_version(),
        "samples_per_question": benchmark.samples_per_question,
        "temperature": benchmark.temperature(spec),
        "top_p": spec.top_p,
        "max_response_tokens": spec.max_response_tokens,
    }


def comparability_key(parts: Mapping[str, Any]) -> str:
    """Return 12 hexadecimal digits that are equal where all parts are."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def benchmark_event(
    spec: EvalSpec, benchmark: LoadedBenchmark, answers: Mapping[str, AnsweredQuestion], seconds: float
) -> dict[str, Any]:
    """Return what is recorded of a finished benchmark."""
    parts = comparability(spec, benchmark)
    ordered = [answers[question.question_id] for question in benchmark.questions]
    samples = [sample for item in ordered for sample in item.samples]
    return {
        "benchmark": benchmark.protocol.name,
        "title": benchmark.protocol.title,
        "comparability": parts,
        "comparability_key": comparability_key(parts),
        "samples_per_question": benchmark.samples_per_question,
        "question_ids": [entry.question_id for entry in ordered],
        "num_correct": {scheme.value: [_num_correct(value, scheme) for value in ordered] for scheme in Scheme},
        "outcomes": {
            scheme.value: dict(
                Counter(str(getattr(side, scheme)) for answered in ordered for side in answered.outcomes)
            )
            for scheme in Scheme
        },
        "mean_tokens": sum(sample.num_tokens for sample in samples) / len(samples),
        "truncated_share": sum(sample.is_truncated for sample in samples) / len(samples),
        "notices": benchmark.notices,
        "seconds": seconds,
        "model": spec.model.source,
        "source_run_id": spec.model.run_id,
        "source_step": spec.model.step,
    }


def _num_correct(answered: AnsweredQuestion, scheme: Scheme) -> int:
    return sum(getattr(outcome, scheme) is Grade.CORRECT for outcome in answered.outcomes)


def reward_means(
    parts: RewardParts, questions: Sequence[BenchmarkQuestion], answers: Mapping[str, AnsweredQuestion]
) -> dict[str, float]:
    """Return the mean of each part by its name; the answer is right where `training` says so."""
    graded = [
        (
            Question(index, item.question_id, _NO_TOKENS, item.text, item.answer, {"question": item.text}),
            Response(sample.text, _NO_TOKENS, sample.is_truncated),
            Verdict(float(sides.training is Grade.CORRECT), sides.training.value),
        )
        for index, item in enumerate(questions)
        for sample, sides in zip(answers[item.question_id].samples, answers[item.question_id].outcomes, strict=True)
    ]
    asked, responses, verdicts = (list(column) for column in zip(*graded, strict=True))
    parts.weigh(asked, responses, verdicts)
    return parts.take_means()
