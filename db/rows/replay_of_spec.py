"""Whether a specification replays, as the algorithm itself reads it."""

from collections.abc import Mapping
from typing import Any

from exgrpo_core.config import ExGRPOConfig

DEFAULT_EXPERIENCE_RATIO = ExGRPOConfig().experience_ratio
"""rho where a specification does not say it."""


def experience_ratio(spec: Mapping[str, Any]) -> float:
    """Return rho of a run's specification: the algorithm's default where it is not written, 0 of other jobs."""
    if spec.get("kind", "train") != "train":
        return 0.0
    return float(spec.get("algorithm", {}).get("experience_ratio", DEFAULT_EXPERIENCE_RATIO))
