"""What pages read in a run's specification; missing fields have their defaults."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from exgrpo_core.config import ExGRPOConfig

_DEFAULTS = dataclasses.asdict(ExGRPOConfig())
DEFAULT_EXPERIENCE_RATIO: float = _DEFAULTS["experience_ratio"]
"""rho if a specification does not set it."""


def algorithm_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return every hyperparameter of a training run's specification."""
    return _DEFAULTS | dict(spec.get("algorithm", {}))


def experience_ratio(spec: Mapping[str, Any]) -> float:
    """Return rho of a run's specification, 0 of jobs that do not train."""
    return float(algorithm_settings(spec)["experience_ratio"]) if spec.get("kind", "train") == "train" else 0.0


def benchmark_titles(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the titles of the benchmarks that a training run is scored on, of those with another than their name."""
    benchmarks: Mapping[str, Any] = spec.get("validation", {}).get("benchmarks", {})
    return {
        name: fields["title"] for name, fields in benchmarks.items() if isinstance(fields, dict) and "title" in fields
    }
