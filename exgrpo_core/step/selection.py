"""Lines 9 to 15 of Algorithm 1: score the candidates of drawn questions and put o* into their groups."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import PolicyEngine
from exgrpo_core.experience_management.candidate_scores import mean_scores, within_budget
from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.loading import build_selector
from exgrpo_core.methods.protocols import QuestionSampler
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import BufferEvent, BufferEventKind, Selection, StepReport
from exgrpo_core.types import Experience, Float32Array, Int64Array, Replay, RolloutGroup, TrajectoryScores

_NO_ROWS: Int64Array = np.empty(0, dtype=np.int64)


def list_candidates(
    state: ExGRPOState,
    config: ExGRPOConfig,
    sampler: QuestionSampler,
    groups: Sequence[RolloutGroup],
    drawn: Collection[int],
) -> list[list[Experience]]:
    """Return the candidates of each group: stored trajectories of drawn questions.

    A candidate budget leaves out those of highest entropy when last scored. A group that only replays has the newest
    stored group. Another group has one candidate if its question has a trajectory from a file, else none.
    """
    is_whole = sampler.placement.is_whole_group
    rows: list[Int64Array] = []
    for group in groups:
        replays = group.question.index in drawn and not (is_whole and group.trajectories)
        rows.append(_rows(state, config, sampler, group.question.index) if replays else _NO_ROWS)
    # One gather for all questions: cold reads of the segments overlap.
    stored = iter(state.replay_buffer.experiences(np.concatenate(rows)) if any(part.size for part in rows) else ())
    candidates = [list(islice(stored, part.size)) for part in rows]
    if is_whole:
        return [[item for item in part if item.born_step == part[-1].born_step] for part in candidates]
    return [
        part or ([state.external[group.question.index]] if group.question.index in state.external else [])
        for group, part in zip(groups, candidates, strict=True)
    ]


def _rows(state: ExGRPOState, config: ExGRPOConfig, sampler: QuestionSampler, question_index: int) -> Int64Array:
    rows = state.replay_buffer.rows_of(question_index)
    if sampler.placement.is_whole_group:
        return rows[-config.rollouts_per_question :]
    if sampler.max_candidates is not None:
        rows = rows[-sampler.max_candidates :]
    if config.candidate_budget is None:
        return rows
    return rows[within_budget(state.replay_buffer.last_entropies(rows), config.candidate_budget)]


def score_candidates(
    engine: PolicyEngine, groups: Sequence[RolloutGroup], candidates: Sequence[Sequence[Experience]]
) -> TrajectoryScores:
    """Score all candidates under the current policy, in one call.

    Raises:
        ValueError: The engine's arrays do not line up with the stored tokens.
    """
    questions = [group.question for group, experiences in zip(groups, candidates, strict=True) for _ in experiences]
    stored = [candidate for experiences in candidates for candidate in experiences]
    if not stored:
        return TrajectoryScores([], [])
    scores = engine.entropies(questions, stored)
    for candidate, log_probs, entropies in zip(stored, scores.log_probs, scores.entropies, strict=True):
        if not candidate.token_ids.shape == log_probs.shape == entropies.shape:
            raise ValueError(
                f"engine.entropies: trajectory {candidate.trajectory_id} has {candidate.token_ids.size} tokens, got "
                f"{log_probs.size} log-probs and {entropies.size} entropies."
            )
    return scores


def choose_replays(
    state: ExGRPOState,
    config: ExGRPOConfig,
    report: StepReport,
    candidates: Sequence[Sequence[Experience]],
    scores: TrajectoryScores,
    drawn: Mapping[int, float],
) -> None:
    """Give every group that has candidates its replayed trajectories, and record the selection."""
    if not scores.log_probs:
        return
    selector = build_selector(config)
    stored = [candidate for experiences in candidates for candidate in experiences]
    rows = np.array([candidate.row for candidate in stored], dtype=np.int64)
    is_stored = rows >= 0
    uses = np.zeros_like(rows)
    uses[is_stored] = state.replay_buffer.uses(rows[is_stored])
    columns = mean_scores(scores, uses, stored)
    state.replay_buffer.record_entropies(rows[is_stored], columns.entropies[is_stored])
    replayed_rows: list[int] = []
    start = 0
    for group, experiences in zip(report.groups, candidates, strict=True):
        if not experiences:
            continue
        part = slice(start, start + len(experiences))
        start += len(experiences)
        weight = drawn.get(group.question.index, 1.0)
        if group.trajectories:
            group_columns = columns.of_question(part)
            positions, values = selector.choose(group_columns, config.replays_per_group, state.rng)
            chosen = positions.tolist()
            if experiences[chosen[0]].row >= 0:
                report.selections.append(_selection(state, group, experiences, group_columns, values, chosen))
        else:
            chosen = list(range(len(experiences)))
        replays = [_replay(experiences[i], scores, start - len(experiences) + i, weight) for i in chosen]
        group.replay, group.more_replays = replays[0], tuple(replays[1:])
        replayed_rows += [replay.experience.row for replay in replays if not replay.is_external]
        report.buffer_events += _replayed_events(state, group)
    state.replay_buffer.record_uses(np.array(replayed_rows, dtype=np.int64))


def _replay(experience: Experience, scores: TrajectoryScores, position: int, weight: float) -> Replay:
    old_log_probs, entropies = scores.log_probs[position], scores.entropies[position]
    return Replay(experience, old_log_probs, entropies, is_external=experience.row < 0, weight=weight)


def _replayed_events(state: ExGRPOState, group: RolloutGroup) -> list[BufferEvent]:
    index = group.question.index
    bucket = state.replay_buffer.bucket_of(index)
    stored = [replay.experience for replay in group.replays if not replay.is_external]
    return [BufferEvent(BufferEventKind.REPLAYED, index, item.trajectory_id, bucket, bucket) for item in stored]


def _selection(
    state: ExGRPOState,
    group: RolloutGroup,
    experiences: Sequence[Experience],
    columns: CandidateColumns,
    values: Float32Array,
    chosen: Sequence[int],
) -> Selection:
    bucket = state.replay_buffer.bucket_of(group.question.index)
    return Selection(
        question_index=group.question.index,
        bucket=-1 if bucket is None else bucket,
        trajectory_ids=np.array([candidate.trajectory_id for candidate in experiences], dtype=np.int64),
        born_steps=np.array([candidate.born_step for candidate in experiences], dtype=np.int64),
        num_tokens=np.array([candidate.token_ids.size for candidate in experiences], dtype=np.int64),
        entropies=columns.entropies.astype(np.float32),
        nlls=columns.nlls.astype(np.float32),
        scores=values.astype(np.float32),
        chosen=chosen[0],
        also_chosen=tuple(chosen[1:]),
    )
