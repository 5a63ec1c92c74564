"""The interface between the algorithm and the engine of the model, which prompts fit, and what ends a response."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol, runtime_checkable

import numpy as np

from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.types import Experience, Int32Array, Question, RolloutGroup, TrajectoryScores


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Ask for `num_rollouts` fresh trajectories of `question`: K, or K-1 where one will be replayed.

    Responses begin with `prefix_ids`, which count against the limit of response tokens.
    """

    question: Question
    num_rollouts: int
    prefix_ids: Int32Array = field(default_factory=lambda: np.empty(0, dtype=np.int32), compare=False)


class PolicyEngine(Protocol):
    """Holds pi_theta. `exgrpo_step` calls `rollout`, `entropies` and `update` in this order, once a step.

    The policy changes in `update` only, so log-probs of `rollout` and `entropies` belong to the same pi_old. One
    caller, one thread; a call returns when its work is done.
    """

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Return one group a request, in order, each with exactly `num_rollouts` rewarded trajectories.

        A group without any is one whose rollouts failed: the step leaves it out.
        Log-probs are the training model's at rollout temperature, those of a prefix too. Nothing but temperature shapes
        the distribution.
        """
        ...

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Score stored trajectories under the current policy; `questions[i]` is candidate i's question."""
        ...

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Take one optimizer step a mini-batch, in order, and return metrics named as in `step_report.METRICS`.

        An engine can leave what it saw of each mini-batch in its `seen`.
        """
        ...


@runtime_checkable
class AheadEngine(PolicyEngine, Protocol):
    """An engine that can generate while it updates, for `rollouts_ahead`."""

    def begin_rollout(self, requests: Sequence[RolloutRequest]) -> None:
        """Begin to generate under the policy as it is now, and return at once.

        The next call of `rollout` has the same requests and returns what was begun: log-probs are under the policy by
        then, `sampler_log_probs` under the one that generated. What was begun is no part of a checkpoint: a restored
        engine generates again.
        """
        ...


def describe_misfit(prompts: Iterable[tuple[str, int]], max_prompt_tokens: int) -> str:
    """Return which prompts cannot be generated for, "" if all can: such as a row's name and its prompt's tokens.

    This is the one rule of what is too long: files before a run, benchmarks and both engines ask it.
    """
    misfits = [(num_tokens, name) for name, num_tokens in prompts if not 1 <= num_tokens <= max_prompt_tokens]
    if not misfits:
        return ""
    longest, name = max(misfits)
    if not longest:
        return f"the prompt of {name} has no token"
    several = f"{len(misfits):,} prompt{'' if len(misfits) == 1 else 's'}"
    return f"{several} longer than {max_prompt_tokens} tokens (the longest, {name}, has {longest})"


_MAX_TOKEN = 2**31 - 1


def read_end_tokens(source: str, *named: object) -> list[int]:
    """Return the tokens that end a response; each place of a model's files names one, several or none.

    Raises:
        EngineError: None is named, or something that is no token.
    """
    lists = (value if isinstance(value, list) else [value] for value in named if value is not None)
    end_tokens: set[int] = set()
    for token in chain.from_iterable(lists):
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= _MAX_TOKEN:
            raise EngineError(
                f"{source} has the eos_token_id {token!r:.40}; expected the number of a token.", "model.source"
            )
        end_tokens.add(token)
    if not end_tokens:
        raise EngineError(
            f"{source} names no end-of-sequence token; set eos_token_id in its config.json.", "model.source"
        )
    return sorted(end_tokens)
