"""What pages read in a run's specification; missing fields have their defaults."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from exgrpo_core.config import ExGRPOConfig, RewardKind

UNREADABLE_KIND = "unreadable"
"""The kind of a job that recorded nothing that says its kind."""
_MARK = "is_unreadable"
RECORDED_KIND = "recorded"
"""The kind of a run that a loop of the user's recorded, or that was imported: its algorithm is unknown."""
UNREADABLE_SPEC: Mapping[str, Any] = {"kind": UNREADABLE_KIND, _MARK: True}
UNKNOWN = "unknown"
"""What pages and commands show where nothing is known."""
SYMBOLS = {
    "K": "algorithm.rollouts_per_question", "B": "algorithm.batch_size", "rho": "algorithm.experience_ratio",
    "mu": "algorithm.bucket_center", "sigma": "algorithm.bucket_spread", "beta": "algorithm.shaping_beta",
    "epsilon": "algorithm.clip_epsilon", "lr": "optim.learning_rate",
    "\u03c1": "algorithm.experience_ratio", "\u03bc": "algorithm.bucket_center", "\u03c3": "algorithm.bucket_spread",
    "\u03b2": "algorithm.shaping_beta", "\u03b5": "algorithm.clip_epsilon",
}  # fmt: skip
"""Fields by the symbols that the paper and the pages have for them."""
SEED_FIELDS = frozenset({"seed", "algorithm.seed", "model.warm_seed"})
_DEFAULTS = dataclasses.asdict(ExGRPOConfig())
DEFAULT_EXPERIENCE_RATIO: float = _DEFAULTS["experience_ratio"]
"""rho if a specification does not set it."""


def is_unreadable(spec: Mapping[str, Any]) -> bool:
    """Whether this is the placeholder, so that settings are unknown."""
    return spec.get(_MARK) is not None


def is_recorded(spec: Mapping[str, Any]) -> bool:
    """Whether a specification is that of a recorded or imported run, so that its algorithm is unknown."""
    return bool(spec.get("kind") == RECORDED_KIND)


def algorithm_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return every hyperparameter of a training run's specification."""
    return _DEFAULTS | dict(spec.get("algorithm", {}))


def has_continuous_rewards(algorithm: Mapping[str, Any]) -> bool:
    """Whether the buckets of these hyperparameters are of the spread of rewards, not of correct rollouts."""
    return bool(algorithm["reward_kind"] == RewardKind.CONTINUOUS)


def bucket_meaning(algorithm: Mapping[str, Any]) -> str:
    """Return what the number of a bucket says of its questions."""
    return "spread of rewards, 0 to K" if has_continuous_rewards(algorithm) else "correct rollouts of K"


def experience_ratio(spec: Mapping[str, Any]) -> float:
    """Return rho of a run's specification, 0 of jobs that do not train and where it is unknown."""
    is_known = spec.get("kind", "train") == "train" and not is_unreadable(spec)
    return float(algorithm_settings(spec)["experience_ratio"]) if is_known else 0.0


def may_replay(spec: Mapping[str, Any]) -> bool:
    """Whether a training run replays; True where its settings are unknown."""
    return experience_ratio(spec) > 0.0 or is_unreadable(spec)


def benchmark_titles(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the titles of the benchmarks that a training run is scored on, of those with another than their name."""
    benchmarks: Mapping[str, Any] = spec.get("validation", {}).get("benchmarks", {})
    return {
        name: fields["title"] for name, fields in benchmarks.items() if isinstance(fields, dict) and "title" in fields
    }
