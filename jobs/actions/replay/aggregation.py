"""Stage loss of another program's run: which aggregation of its tokens' terms gives the recorded loss.

Sources: mean of sequence means GRPO arXiv:2402.03300; mean over tokens DAPO arXiv:2503.14476; a constant divisor
Dr.GRPO arXiv:2503.20783. The term of a token is PPO's, arXiv:1707.06347, with a ratio of 1 where the log-probs that the
update saw are not recorded.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exgrpo.db.queries.metrics import metric_series
from exgrpo.db.rows.replays import StepTrajectoryRow
from exgrpo.jobs.actions.replay.facts import Fact, Stage, named, unknown
from exgrpo.jobs.actions.replay.recorded_step import RecordedStep
from exgrpo.jobs.specs.any_job import RecordedSpec
from exgrpo_core.recording.run import flat
from exgrpo_core.types import Float64Array

COMPARED = "loss aggregation"
_LOSSES = ("loss", "train/loss", "actor/pg_loss", "policy_loss")
"""Metrics of the policy loss, the first one that is there."""
_LENGTHS = ("max_completion_length", "max_response_length", "max_response_tokens", "max_new_tokens", "max_tokens")
"""Settings by one of which Dr.GRPO can divide."""
_CLIPS = (("epsilon", "clip_ratio_low", "clip_ratio", "clip_epsilon"), ("epsilon_high", "clip_ratio_high"))
_CLIP = 0.2
_TOLERANCE, _LEAST = 1e-4, 2e-6
"""Relative to the loss, and to the mean size of a token's term: losses are sums of float32 numbers."""
_DECIMALS = 4
"""To which some trainers round the loss."""


def aggregation_facts(recorded: RecordedStep) -> list[Fact]:
    """Return which aggregations of all trajectories of the step give its loss, or what was not recorded for that."""
    rows = [row for row in recorded.trajectories if not row.is_replayed]
    points = metric_series(recorded.database, recorded.run_id, _LOSSES, None)
    losses = (point.value for name in _LOSSES for point in points[name] if point.step == recorded.step)
    loss = next(losses, None)
    if loss is None:
        return [_missing("The loss was not recorded: `run.log(step, {'loss': value})` records it.")]
    for words, name in (("Advantages", "advantage"), ("Numbers of tokens", "num_tokens")):
        if np.isnan(np.array([getattr(row, name) for row in rows], dtype=np.float64)).any():
            note = f"{words} were not recorded: `run.log(step, trajectories=[{{..., {name!r}: value}}])` records them."
            return [_missing(note)]
    if not any(row.advantage for row in rows):
        return [_missing("Each advantage is 0, so every aggregation gives 0.")]
    spec = recorded.run.job_spec()
    config = dict(flat(spec.config)) if isinstance(spec, RecordedSpec) else {}
    counts = np.array([row.num_tokens for row in rows], dtype=np.float64)
    plain = -counts * [row.advantage for row in rows]
    seen = _seen_terms(recorded, rows, config)
    terms = plain if seen is None else seen
    size = float(np.abs(plain).sum() / counts.sum())
    rounding = 0.5 * 10.0**-_DECIMALS if loss and round(loss, _DECIMALS) == loss else 0.0
    found = dict(_aggregations(terms, counts, config))
    least = max(_TOLERANCE * abs(loss), _LEAST * size, rounding)
    fits = [name for name, value in found.items() if abs(value - loss) <= least]
    if fits:
        return [named(Stage.LOSS, COMPARED, "Loss is the", fits, 1)]
    nearest = min(found, key=lambda name: abs(found[name] - loss))
    why = (
        "It can have a KL penalty, an entropy bonus or another objective than PPO's."
        if seen is not None
        else "If the update saw other log-probs than the rollout, as after a first mini-batch, "
        "`run.log(step, trajectories=[{..., 'log_probs': values, 'update_log_probs': values}])` records both."
    )
    return [_missing(f"No aggregation gives {loss:.6g}; nearest is the {nearest} with {found[nearest]:.6g}. {why}")]


def _missing(note: str) -> Fact:
    return unknown(Stage.LOSS, COMPARED, note)


def _aggregations(terms: Float64Array, counts: Float64Array, config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield aggregations of the sums (B,) of the terms of each trajectory's tokens, by name."""
    yield "mean over all tokens (DAPO; TRL's dapo and bnpo, verl's token-mean)", terms.sum() / counts.sum()
    yield (
        "mean over sequences of the mean over tokens (GRPO; TRL's grpo, verl's seq-mean-token-mean)",
        np.divide(terms, counts, out=np.zeros_like(terms), where=counts > 0).mean(),
    )
    for name, value in config.items():
        if name.rpartition("/")[2] in _LENGTHS and isinstance(value, int) and value > 0:
            words = f"sum over tokens by {name} of {value} and sequence (Dr.GRPO; TRL's dr_grpo)"
            yield words, terms.mean() / value
    yield "mean over sequences of the sum over tokens (verl's seq-mean-token-sum)", terms.mean()


def _seen_terms(
    recorded: RecordedStep, rows: Sequence[StepTrajectoryRow], config: Mapping[str, Any]
) -> Float64Array | None:
    """Return the sum (B,) of the terms of each trajectory, None if it was not recorded what the update saw."""
    values = [recorded.tokens.get((row.trajectory_id, False), {}) for row in rows]
    pairs = [(of_row.get("update_log_probs"), of_row.get("log_probs")) for of_row in values]
    seen = [(new, old) for new, old in pairs if new is not None and old is not None]
    if len(seen) < len(pairs):
        return None
    last = {name.rpartition("/")[2]: value for name, value in config.items()}
    low, high = (next((last[name] for name in names if type(last.get(name)) in {int, float}), None) for names in _CLIPS)
    low = _CLIP if low is None else low
    limits = 1.0 - low, 1.0 + (low if high is None else high)
    sums = []
    for row, (new, old) in zip(rows, seen, strict=True):
        ratios = np.exp(new.astype(np.float64) - old)
        sums.append(-np.minimum(ratios * row.advantage, np.clip(ratios, *limits) * row.advantage).sum())
    return np.array(sums)
