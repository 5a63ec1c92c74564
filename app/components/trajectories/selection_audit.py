"""Checks of a step's selections against their recorded scores, token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.components.replay_buffer import what_if
from app.components.replay_buffer.what_if import Candidate
from app.formats import counted
from db.rows.replays import SelectionRow
from db.rows.runs import CandidateRow
from exgrpo_core.methods.protocols import TrajectorySelector

FLOAT16_STEP = 2.0**-11
"""Largest relative error of a number stored as float16, as token entropies are."""
_FLOAT32_TOLERANCE = 2e-5
ENTROPY, NLL = "entropy", "NLL"
"""Names of the checks whose recomputed values a table shows."""

Tokens = Mapping[str, Sequence[float] | None]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: whether it holds (None where what it needs is not recorded), and what it compared."""

    name: str
    is_good: bool | None
    message: str
    recomputed: float | None = None
    """The value from the tokens, of a check that compares one with the record."""


def check_choice(
    selection: SelectionRow, candidates: Sequence[CandidateRow], estimator: TrajectorySelector | None,
    num_wanted: int = 1,
) -> list[Check]:  # fmt: skip
    """Check that `num_wanted` candidates were chosen, the first is replayed, and it is the estimator's argmin.

    Without an estimator, where the run's is not known here, the lowest recorded score is expected.
    """
    chosen = [row.trajectory_id for row in candidates if row.is_chosen]
    has_number = len(chosen) == min(num_wanted, len(candidates)) and selection.chosen_trajectory_id in chosen
    return [
        Check("number chosen", has_number, f"chosen: {_listed(chosen)}"),
        Check(
            "replayed is the chosen",
            selection.replayed_trajectory_id == selection.chosen_trajectory_id,
            f"chosen {selection.chosen_trajectory_id}, replayed {selection.replayed_trajectory_id}",
        ),
        _argmin(selection, candidates, estimator),
    ]


def check_tokens(
    selection: SelectionRow, chosen: CandidateRow | None, replayed: Tokens | None, at_rollout: Tokens | None,
    has_new_log_probs: bool = False,
) -> list[Check]:  # fmt: skip
    """Check the replayed tokens: aligned, scored as recorded, and the same as when they were rolled out.

    `has_new_log_probs`: the run replaces stored log-probs, which then need not be those of the rollout.
    """
    if replayed is None or replayed["token_ids"] is None:
        return [Check("tokens", False, "the step's file does not hold the replayed tokens")]
    ids, entropies, log_probs, behavior = (
        np.asarray(replayed[name] if replayed[name] is not None else (), dtype=np.float64)
        for name in ("token_ids", "entropies", "log_probs", "behavior_log_probs")
    )
    sizes = {ids.size, entropies.size, log_probs.size, behavior.size, selection.num_tokens}
    if chosen is not None:
        sizes.add(chosen.num_tokens)
    lengths = Check("aligned", len(sizes) == 1 and ids.size > 0, f"lengths: {_listed(sorted(sizes, key=str))}")
    if not lengths.is_good:
        return [lengths]
    ratio = float(np.exp(log_probs - behavior).mean())
    recorded_nll = None if selection.mean_log_prob is None else -selection.mean_log_prob
    recorded = [(ENTROPY, entropies.mean(), selection.mean_entropy, FLOAT16_STEP)]
    recorded.append((NLL, -log_probs.mean(), recorded_nll, _FLOAT32_TOLERANCE))
    recorded.append(("importance ratio", ratio, selection.mean_ratio, _FLOAT32_TOLERANCE))
    if chosen is not None:
        recorded.append(("entropy that chose", entropies.mean(), chosen.entropy, FLOAT16_STEP))
        recorded.append(("NLL that chose", -log_probs.mean(), chosen.nll, _FLOAT32_TOLERANCE))
    checks = [lengths, _ranges(entropies, log_probs, behavior)]
    checks += [_equal(name, float(value), recomputed, tolerance) for name, value, recomputed, tolerance in recorded]
    return [*checks, *_as_at_rollout(ids, behavior, at_rollout, has_new_log_probs)]


def violations(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that fail; a check that cannot be made is not one."""
    return [check for check in checks if check.is_good is False]


def _argmin(selection: SelectionRow, candidates: Sequence[CandidateRow], estimator: TrajectorySelector | None) -> Check:
    name = "argmin"
    if candidates and all(np.isnan(row.score) for row in candidates):
        return Check(name, None, "a choice without scores")
    if estimator is not None and what_if.is_recomputable(estimator):
        scored = [Candidate(row.trajectory_id, row.step, row.entropy, row.nll, row.num_tokens) for row in candidates]
        best = what_if.rechoose(scored, estimator, None)
        expected = None if best is None else best.trajectory_id
    else:
        expected = min(candidates, key=lambda row: row.score).trajectory_id if candidates else None
    rule = "lowest score" if estimator is None else estimator.name.replace("_", " ")
    message = f"{rule} of {len(candidates)} is trajectory {expected}"
    return Check(name, expected == selection.chosen_trajectory_id, message)


def _as_at_rollout(ids: np.ndarray, behavior: np.ndarray, first: Tokens | None, has_new_log_probs: bool) -> list[Check]:
    if first is None or first["token_ids"] is None or first["log_probs"] is None:
        return [Check("same as at rollout", None, "its tokens at rollout were not stored, or are in another run")]
    same_ids = np.array_equal(ids, np.asarray(first["token_ids"], dtype=np.float64))
    same_tokens = Check(
        "same tokens as at rollout", same_ids, f"{counted(ids.size, 'token')} against {len(first['token_ids'])}"
    )
    if has_new_log_probs:
        return [same_tokens, Check("same log-probs as at rollout", None, "the run refreshes stored log-probs")]
    log_probs = np.asarray(first["log_probs"], dtype=np.float64)
    same_probs = log_probs.shape == behavior.shape and bool(np.array_equal(log_probs, behavior))
    return [
        same_tokens,
        Check("same log-probs as at rollout", same_probs, "behavior log-probs at rollout and in the buffer"),
    ]


def _ranges(entropies: np.ndarray, log_probs: np.ndarray, behavior: np.ndarray) -> Check:
    is_good = bool(
        np.isfinite([*entropies, *log_probs, *behavior]).all()
        and (entropies >= 0).all()
        and (log_probs <= _FLOAT32_TOLERANCE).all()
        and (behavior <= _FLOAT32_TOLERANCE).all()
    )
    return Check("ranges", is_good, "entropies at least 0, log-probs at most 0, all finite")


def _equal(name: str, recomputed: float, recorded: float | None, tolerance: float) -> Check:
    if recorded is None or np.isnan(recorded):
        return Check(name, False, f"recomputed {recomputed:z.6g}, recorded nothing", recomputed)
    is_good = abs(recomputed - recorded) <= tolerance * max(abs(recorded), 1e-3)
    return Check(name, is_good, f"recomputed {recomputed:z.6g}, recorded {recorded:z.6g}", recomputed)


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or "none"
