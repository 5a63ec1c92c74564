"""From the event of a finished benchmark to rows of tables."""

import math
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Row = dict[str, Any]


def score_rows(run_key: int, event: Mapping[str, Any]) -> list[Row]:
    """Return one row per scheme: the mean over questions, with its standard error clustered over them."""
    num_samples = int(event["samples_per_question"])
    return [
        {
            "run_key": run_key,
            "benchmark": event["benchmark"],
            "scheme": scheme,
            "at": datetime.fromisoformat(event["at"]),
            "title": event["title"],
            "num_questions": len(num_correct),
            "samples_per_question": num_samples,
            **_score([count / num_samples for count in num_correct]),
            "question_ids": list(map(str, event["question_ids"])),
            "num_correct": list(map(int, num_correct)),
            "outcomes": {str(outcome): int(count) for outcome, count in event["outcomes"][scheme].items()},
            "comparability": _settings(event["comparability"]),
            "comparability_key": event["comparability_key"],
            "model": event["model"],
            "source_run_id": event["source_run_id"],
            "source_step": event["source_step"],
            "mean_tokens": float(event["mean_tokens"]),
            "truncated_share": float(event["truncated_share"]),
            "seconds": float(event["seconds"]),
            "reward_means": {str(name): float(mean) for name, mean in (event.get("reward_parts") or {}).items()},
        }
        for scheme, num_correct in event["num_correct"].items()
    ]


def standard_error(rates: Sequence[float]) -> float:
    """Return the standard error of the mean of questions' correctness rates; NaN of fewer than two."""
    return statistics.stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan


def _settings(parts: Mapping[str, Any]) -> Row:
    for name, value in parts.items():
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"comparability: {name}: expected a text or a number, got {type(value).__name__}.")
    return dict(parts)


def _score(rates: Sequence[float]) -> Row:
    return {"score": statistics.fmean(rates), "standard_error": standard_error(rates)}
