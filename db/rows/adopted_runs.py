"""Runs adopted from the rollout dumps of a stock verl run: of their settings only model, data and steps are known."""

from collections.abc import Mapping
from typing import Any

ADOPTED_TAG = "adopted"
ADOPTED_ENGINE = "verl"
ADOPTED_TOKEN_DATA = "none"
UNKNOWN = "unknown"
"""What pages and commands show where nothing is known."""


def is_adopted(spec: Mapping[str, Any]) -> bool:
    """Whether a specification was written by `exgrpo import --rollouts`, so that its algorithm is a placeholder."""
    return (
        spec.get("engine") == ADOPTED_ENGINE
        and ADOPTED_TAG in spec.get("tags", ())
        and spec.get("recording", {}).get("token_data") == ADOPTED_TOKEN_DATA
    )
