"""From graded answers to what is recorded of a benchmark."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from jobs.evaluation.answer_log import AnsweredQuestion
from jobs.evaluation.questions import LoadedBenchmark
from jobs.grading.outcomes import Outcome
from jobs.grading.schemes import Scheme, grader_version
from jobs.specs.evaluation import EvalSpec


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
    return sum(getattr(outcome, scheme) is Outcome.CORRECT for outcome in answered.outcomes)
