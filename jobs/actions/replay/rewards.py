"""Stage reward: recorded responses graded again with the run's grader, weighted parts, and rewards of replays."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from exgrpo.db.queries import recorded_steps
from exgrpo.db.rows.replays import StepTrajectoryRow
from exgrpo.jobs.actions.replay.facts import Fact, Stage, compare, unknown
from exgrpo.jobs.actions.replay.recorded_step import RecordedStep
from exgrpo.jobs.specs.base import ANSWER_ALONE, RANDOM
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response, Verdict
from exgrpo.jobs.tasks.grading.rewards import open_reward
from exgrpo.jobs.training.reward_parts import open_reward_parts
from exgrpo_core.errors import InputError, first_line
from exgrpo_core.types import PART_PREFIX, Question

_R = Stage.REWARD
_TOLERANCE = 1e-6
_BY_CHANCE = (Grade.TIMEOUT, Grade.CRASH)
"""Verdicts that depend on how busy the machine was."""


def reward_facts(recorded: RecordedStep, spec: TrainSpec) -> list[Fact]:
    """Return every fact of the stage."""
    fresh = [row for row in recorded.trajectories if not row.is_replayed]
    return [*_graded(recorded, spec, fresh), *_weighted(spec.data.rewards, fresh), *_replayed(recorded)]


def _graded(recorded: RecordedStep, spec: TrainSpec, fresh: Sequence[StepTrajectoryRow]) -> Iterator[Fact]:
    texts = recorded_steps.texts_of(recorded.database, recorded.run_id, recorded.step)
    asked = recorded_steps.questions_of(
        recorded.database, recorded.run_id, sorted({row.question_index for row in fresh})
    )
    known = [row for row in fresh if row.trajectory_id in texts and row.question_index in asked]
    if len(known) < len(fresh):
        yield unknown(_R, "reward", f"{len(fresh) - len(known)} responses or their questions were not recorded.")
    try:
        verdicts = _verdicts(spec, known, [asked[row.question_index] for row in known], texts)
    except InputError as error:  # such as a part of the reward that is code which this machine does not allow
        yield unknown(_R, "reward", str(error))
        return
    except ValueError as error:  # a question of another task than the specification's
        yield unknown(_R, "reward", f"The grader cannot read the recorded questions: {first_line(error)}")
        return
    names = [name for name in spec.data.rewards if name != RANDOM] if _has_parts(spec.data.rewards) else []
    for row, verdict in zip(known, verdicts, strict=True):
        where = {"question": row.question_index, "trajectory": row.trajectory_id}
        if row.verdict in _BY_CHANCE or verdict.outcome in _BY_CHANCE:
            yield unknown(_R, "verdict", "A grader that was ended for its time or memory can decide otherwise.")
            continue
        if row.verdict:
            yield compare(_R, "verdict", row.verdict, verdict.outcome, **where)
        for name in names:
            part = row.extra.get(PART_PREFIX + name)
            yield compare(_R, f"part {name}", part, verdict.parts[name], tolerance=_TOLERANCE, **where)
        if not _has_parts(spec.data.rewards):
            yield compare(_R, "reward", row.reward, verdict.reward, tolerance=_TOLERANCE, **where)


def _verdicts(
    spec: TrainSpec, rows: Sequence[StepTrajectoryRow], questions: Sequence[Question], texts: Mapping[int, str]
) -> list[Verdict]:
    no_tokens = np.empty(0, dtype=np.int32)
    responses = [Response(texts[row.trajectory_id], no_tokens, bool(row.is_truncated)) for row in rows]
    with open_reward(spec) as answer:
        if not _has_parts(spec.data.rewards):
            return answer.grade(questions, responses)
        with open_reward_parts(answer, spec.data.rewards) as parts:
            return parts.grade(questions, responses)


def _has_parts(weights: Mapping[str, float]) -> bool:
    return weights != ANSWER_ALONE


def _weighted(weights: Mapping[str, float], fresh: Sequence[StepTrajectoryRow]) -> Iterator[Fact]:
    """Compare each reward with the weighted sum of its recorded parts."""
    for row in fresh if _has_parts(weights) else ():
        total = sum(weight * row.extra.get(PART_PREFIX + name, np.nan) for name, weight in weights.items())
        where = {"question": row.question_index, "trajectory": row.trajectory_id}
        yield compare(_R, "weighted sum", row.reward, float(total), tolerance=_TOLERANCE, **where)


def _replayed(recorded: RecordedStep) -> Iterator[Fact]:
    """Compare the rewards of what was replayed with those at its rollout."""
    rows = [row for row in recorded.trajectories if row.is_replayed and not row.is_external]
    numbers = [row.trajectory_id for row in rows]
    first = recorded_steps.rewards_at_rollout(recorded.database, recorded.run_id, numbers) if numbers else {}
    for row in rows:
        name = "reward of a replayed trajectory"
        if row.trajectory_id not in first:
            yield unknown(_R, name, "It was rolled out in another run.", row.question_index)
            continue
        where = {"question": row.question_index, "trajectory": row.trajectory_id}
        # The buffer holds rewards as float32.
        yield compare(_R, name, row.reward, first[row.trajectory_id], tolerance=_TOLERANCE, **where)
