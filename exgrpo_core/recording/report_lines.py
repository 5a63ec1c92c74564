"""The lines of an engine's step: the step itself, then a line a fresh and a line a replayed trajectory.

Fresh trajectories keep the values of their tokens where the retention setting says so, replayed ones always: under the
policy that chose them, with the log-probs of the policy that generated them. Of rollouts generated ahead, fresh ones
have the latter too, and a column of policy versions. Where it is recorded what updates saw, fresh ones have those of
another sampler.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exgrpo_core.recording.lines import encode_line, tokens_line
from exgrpo_core.step_report import BucketCount, BufferEvent, Selection, StepReport
from exgrpo_core.sums import mean_of
from exgrpo_core.types import PART_PREFIX, Baseline, Float32Array, Question, Replay, SeenMiniBatch, Trajectory

VERSION_COLUMN = "policy_version"
"""Steps done by the policy that wrote a fresh trajectory; only of rollouts generated ahead."""
PREFIX_TOKENS, PREFIX_OF = "num_prefix_tokens", "prefix_of"
"""How many first tokens of a fresh trajectory are those of an old one, and the id of the old one."""
BASELINES = "baselines"
"""The baseline of each question whose group has another one than the paper's; only where there are some."""
WEIGHTS = "weights"
"""The factor of a replayed trajectory's advantage, by its id; only of those that have one."""
MINI_BATCHES = "mini_batches"
"""What the update saw, in the order of its mini-batches."""
KeepsTokens = Callable[[Trajectory], bool]
"""Whether the values of a fresh trajectory's tokens are kept."""


def step_lines(at: str, report: StepReport) -> Iterator[bytes]:
    """Yield the lines of a step but those of tokens."""
    yield encode_line("step", {"step": report.step, "at": at, **_step_fields(report)})
    is_ahead = any(item.is_ahead for group in report.groups for item in group.trajectories)
    for position, group in enumerate(report.groups):
        advantages = [None] * group.num_trajectories if group.advantages is None else group.advantages.tolist()
        for slot, item in enumerate(group.trajectories):
            place = {"group_position": position, "group_slot": slot, "advantage": advantages[slot]}
            yield encode_line("trajectory", _fresh_fields(report.step, item, is_ahead=is_ahead) | place)
        for replay, advantage in zip(group.replays, advantages[len(group.trajectories) :], strict=True):
            place = {"step": report.step, "group_position": position, "advantage": advantage}
            yield encode_line("replay", place | _replay_fields(replay))


def token_lines(report: StepReport, keeps_tokens: KeepsTokens) -> Iterator[bytes]:
    """Yield the lines of the tokens of a step: of fresh trajectories that are kept, and of all replayed ones."""
    seen = {key: values for mini_batch in report.mini_batches for key, values in mini_batch.tokens.items()}
    for group in report.groups:
        for item in filter(keeps_tokens, group.trajectories):
            values = {"token_ids": item.token_ids, "log_probs": item.log_probs, "entropies": item.entropies}
            values |= {"behavior_log_probs": item.sampler_log_probs if item.is_ahead or seen else None}
            values |= _padded(seen.get((item.trajectory_id, False), {}), item.token_ids.size)
            yield tokens_line(report.step, int(item.trajectory_id), values)
        for replay in group.replays:
            stored = replay.experience
            values = {"token_ids": stored.token_ids, "log_probs": replay.old_log_probs, "entropies": replay.entropies}
            values |= {"behavior_log_probs": stored.behavior_log_probs}
            values |= seen.get((stored.trajectory_id, True), {})
            yield tokens_line(report.step, int(stored.trajectory_id), values, is_replayed=True)


def _padded(seen: Mapping[str, Float32Array], size: int) -> dict[str, Float32Array]:
    """Return what the update saw with NaN for the tokens of a prefix that it did not train on."""
    return {
        name: np.pad(values, (size - values.size, 0), constant_values=np.nan) if values.size < size else values
        for name, values in seen.items()
    }


def question_fields(questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Return what a line says of questions."""
    return [
        {
            "question_index": question.index,
            "question_id": question.question_id,
            "prompt_text": question.prompt_text,
            "answer": question.answer,
            "details": json.loads(json.dumps(dict(question.metadata), default=str)),
        }
        for question in questions
    ]


def _fresh_fields(step: int, item: Trajectory, *, is_ahead: bool) -> dict[str, Any]:
    fields = {
        "step": step,
        "trajectory_id": int(item.trajectory_id),
        "question_index": int(item.question_index),
        "reward": float(item.reward),
        "verdict": item.verdict,
        "is_valid": item.is_valid,
        "has_code": item.has_code,
        "is_truncated": item.is_truncated,
        "num_tokens": int(item.token_ids.size),
        "mean_entropy": mean_of(item.entropies),
        "mean_log_prob": mean_of(item.log_probs),
        "text": item.text,
    }
    extra = {f"{PART_PREFIX}{name}": float(part) for name, part in item.reward_parts.items()}
    if is_ahead:
        extra[VERSION_COLUMN] = int(item.policy_version)
    if item.num_prefix_tokens:
        extra |= {PREFIX_TOKENS: int(item.num_prefix_tokens), PREFIX_OF: int(item.prefix_of)}
    return fields | ({"extra": extra} if extra else {})


def _replay_fields(replay: Replay) -> dict[str, Any]:
    stored = replay.experience
    ratios = np.exp(replay.old_log_probs - stored.behavior_log_probs)
    return {
        "question_index": int(stored.question_index),
        "trajectory_id": int(stored.trajectory_id),
        "rollout_step": int(stored.rollout_step),
        "is_external": replay.is_external,
        "reward": float(stored.reward),
        "num_tokens": int(stored.token_ids.size),
        "mean_entropy": mean_of(replay.entropies),
        "mean_log_prob": mean_of(replay.old_log_probs),
        "mean_ratio": mean_of(ratios),
        "max_ratio": float(ratios.max(initial=0.0)),
    }


def _step_fields(report: StepReport) -> Mapping[str, Any]:
    others = {
        str(group.question.index): str(group.baseline)
        for group in report.groups
        if group.baseline is not Baseline.TOGETHER
    }
    replays = (replay for group in report.groups for replay in group.replays)
    weights = {str(replay.experience.trajectory_id): replay.weight for replay in replays if replay.weight != 1.0}
    return {
        "is_replay_open": report.is_replay_open,
        "metrics": {key: float(value) for key, value in report.metrics.items()},
        "buckets": list(map(_plain, report.buckets)),
        "selections": list(map(_plain, report.selections)),
        "buffer_events": list(map(_plain, report.buffer_events)),
        "notices": report.notices,
        **({BASELINES: others} if others else {}),
        **({MINI_BATCHES: list(map(_mini_batch, report.mini_batches))} if report.mini_batches else {}),
        **({WEIGHTS: weights} if weights else {}),
        **({} if report.random_state is None else {"random_state": _state_fields(report.random_state)}),
    }


def _mini_batch(seen: SeenMiniBatch) -> dict[str, Any]:
    """Return the numbers of the trajectories of a mini-batch, and the sums of its loss."""
    numbers = {False: list[int](), True: list[int]()}
    for number, is_replayed in seen.tokens:
        numbers[is_replayed].append(int(number))
    return {"fresh": numbers[False], "replayed": numbers[True], "sums": dict(seen.sums)}


def _state_fields(state: Mapping[str, Any]) -> list[str | int]:
    """Return a generator's two numbers of 128 bits in base 16, and the half of 64 bits that it has left, if any."""
    numbers = state["state"]
    return [f"{numbers['state']:x}", f"{numbers['inc']:x}", int(state["has_uint32"]), int(state["uinteger"])]


def read_state(fields: Sequence[Any]) -> dict[str, Any]:
    """Return the state of a generator (PCG64) that a step's line has.

    Raises:
        ValueError: They are none.
    """
    state, increment, has_half, half = fields
    numbers = {"state": int(state, 16), "inc": int(increment, 16)}
    return {"bit_generator": "PCG64", "state": numbers, "has_uint32": int(has_half), "uinteger": int(half)}


def _plain(record: BucketCount | BufferEvent | Selection) -> dict[str, Any]:
    """Return a record's fields by their names, with NumPy's numbers and arrays as Python's."""
    names = record._fields if isinstance(record, BufferEvent) else record.__dataclass_fields__
    values = ((name, getattr(record, name)) for name in names)
    return {name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value for name, value in values}
