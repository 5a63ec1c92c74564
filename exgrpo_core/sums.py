"""Sums over the tokens of trajectories, and over the trajectories of a step, with the metrics that follow from them.

Engines and the reader of recorded loops both compute these metrics here. Tokens are summed in pieces that stay in the
processor's cache: one array of a large step's tokens would be gigabytes, whose first use alone takes longer than the
arithmetic.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.types import PART_PREFIX, Float32Array, Float64Array, Int64Array

_TOKENS_AT_ONCE = 1 << 15
PASS_RATE = "reward/pass_at_1"
FOLLOWING = frozenset(
    {
        "reward/mean",
        PASS_RATE,
        "response/mean_tokens",
        "response/max_tokens",
        "policy/entropy",
        "response/truncated_share",
    }
)
"""The metrics that follow."""
CORRECT_REWARD = 1.0
"""The rewards of the workbench's training are this and more for correct answers, whatever their parts are."""
VERDICTS = ("correct", "wrong", "unparsed", "timeout", "crash")
"""What grading says of a response; the first is the only success."""
OUTCOMES = (-1.0, 0.0, 1.0)
"""Rewards of recorded loops that say whether an answer is correct: a reward on another scale does not."""


def row_lengths(rows: Sequence[Float32Array]) -> Int64Array:
    """Return the number of tokens of each row."""
    return np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))


def token_sums(
    rows: Sequence[Float32Array], function: Callable[[Float64Array], Float64Array] | None = None
) -> Float64Array:
    """Return the sum over each row (T_i,), T_i > 0, of its values, or of what `function` makes of each of them."""
    lengths = row_lengths(rows)
    sums = np.empty(lengths.size, dtype=np.float64)
    for part in _parts(lengths):
        values = np.concatenate(rows[part], dtype=np.float64)
        starts = np.cumsum(lengths[part]) - lengths[part]
        sums[part] = np.add.reduceat(values if function is None else function(values), starts)
    return sums


def _parts(lengths: Int64Array) -> Iterator[slice]:
    """Yield the rows in parts of about as many tokens as fit the cache, in order."""
    ends = np.cumsum(lengths)
    start = 0
    while start < lengths.size:
        before = int(ends[start] - lengths[start])
        end = max(start + 1, int(np.searchsorted(ends, before + _TOKENS_AT_ONCE, side="right")))
        yield slice(start, end)
        start = end


def mean_of(values: NDArray[Any] | None) -> float | None:
    """Return the mean of the values of a trajectory's tokens, None where there are none."""
    return None if values is None or not values.size else float(values.sum(dtype=np.float64)) / values.size


def is_correct(row: Mapping[str, Any]) -> bool | None:
    """Return whether a trajectory is correct, None where that is not known; of a recorded one its verdict decides."""
    reward, verdict = row["reward"], row["verdict"]
    if row.get("recorded_id") is None:
        return None if reward is None else reward >= CORRECT_REWARD
    if verdict in VERDICTS:
        return bool(verdict == VERDICTS[0])
    return reward == 1.0 if reward in OUTCOMES else None


@dataclass(slots=True)
class StepSums:
    """Counts and sums of what is known; `logged` has the metrics that the loop records itself."""

    num_rows: int = 0
    num_rewards: int = 0
    rewards: float = 0.0
    num_outcomes: int = 0
    """Trajectories that are known to be correct or wrong."""
    num_correct: int = 0
    num_unknown: int = 0
    """Trajectories with a reward that does not say so."""
    num_lengths: int = 0
    lengths: int = 0
    longest: int = 0
    num_entropies: int = 0
    """Tokens whose mean entropy is known."""
    entropies: float = 0.0
    num_cuts_known: int = 0
    num_cut: int = 0
    parts: dict[str, list[float]] = field(default_factory=dict)
    """Number and sum of each part of the reward."""
    logged: list[str] = field(default_factory=list)

    @classmethod
    def of_record(cls, record: Mapping[str, Any] | None) -> "StepSums":
        """Return the sums that a step's row holds, empty ones of a new step."""
        return cls(**record or {})

    def add(self, rows: Iterable[Mapping[str, Any]], metrics: Iterable[str]) -> None:
        """Add trajectories, and the names of metrics that the loop recorded."""
        self.logged = sorted({*self.logged, *metrics})
        for row in rows:
            self.num_rows += 1
            self._add_reward(row["reward"], is_correct(row))
            self._add_parts(row["extra"] or {})
            self._add_length(row["num_tokens"], row["mean_entropy"])
            if row["is_truncated"] is not None:
                self.num_cuts_known += 1
                self.num_cut += row["is_truncated"]

    def _add_reward(self, reward: float | None, correct: bool | None) -> None:
        self.num_outcomes += correct is not None
        self.num_correct += correct is True
        if reward is not None and math.isfinite(reward):
            self.num_rewards += 1
            self.rewards += reward
            self.num_unknown += correct is None

    def _add_parts(self, columns: Mapping[str, Any]) -> None:
        for name, value in columns.items():
            if name.startswith(PART_PREFIX) and isinstance(value, int | float) and math.isfinite(value):
                number, total = self.parts.get(name, (0, 0.0))
                self.parts[name] = [number + 1, total + value]

    def _add_length(self, num_tokens: int | None, entropy: float | None) -> None:
        if num_tokens is None:
            return
        self.num_lengths += 1
        self.lengths += num_tokens
        self.longest = max(self.longest, num_tokens)
        if entropy is not None and math.isfinite(entropy):
            self.num_entropies += num_tokens
            self.entropies += entropy * num_tokens

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the step that follow, without those that the loop records itself."""
        found = {name: total / number for name, (number, total) in self.parts.items()}
        if self.num_rewards:
            found["reward/mean"] = self.rewards / self.num_rewards
        if self.num_outcomes and not self.num_unknown:
            found[PASS_RATE] = self.num_correct / self.num_outcomes
        if self.num_lengths:
            found["response/mean_tokens"] = self.lengths / self.num_lengths
            found["response/max_tokens"] = float(self.longest)
        if self.num_entropies:
            found["policy/entropy"] = self.entropies / self.num_entropies
        if self.num_cuts_known:
            found["response/truncated_share"] = self.num_cut / self.num_cuts_known
        return {name: value for name, value in found.items() if name not in self.logged}
