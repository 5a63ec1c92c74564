"""Lines 9 to 15 of Algorithm 1: score the candidates of drawn questions and put o* into their groups."""

from collections.abc import Sequence
from itertools import islice

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import PolicyEngine
from exgrpo_core.experience_management.trajectory_selection import mean_scores, within_budget
from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.loading import build_selector
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import BufferEvent, BufferEventKind, Selection, StepReport
from exgrpo_core.types import Experience, Int64Array, Replay, RolloutGroup, TrajectoryScores


def list_candidates(
    state: ExGRPOState, config: ExGRPOConfig, groups: Sequence[RolloutGroup], num_fresh: int
) -> list[list[Experience]]:
    """Return the candidates of each group: stored trajectories of drawn questions (those from `num_fresh` on).

    A candidate budget leaves out those of highest entropy when last scored.
    A fresh group has one candidate if its question has a trajectory from a file, else none.
    """
    fresh = [
        [state.external[group.question.index]] if group.question.index in state.external else []
        for group in groups[:num_fresh]
    ]
    rows = [_rows_within_budget(state, config, group.question.index) for group in groups[num_fresh:]]
    if not rows:
        return fresh
    # One gather for all questions: cold reads of the segments overlap.
    stored = iter(state.replay_buffer.experiences(np.concatenate(rows)))
    return fresh + [list(islice(stored, row.size)) for row in rows]


def _rows_within_budget(state: ExGRPOState, config: ExGRPOConfig, question_index: int) -> Int64Array:
    rows = state.replay_buffer.rows_of(question_index)
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
) -> None:
    """Give every group that has candidates its replayed trajectory, and record the selection."""
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
    chosen_rows: list[int] = []
    start = 0
    for group, experiences in zip(report.groups, candidates, strict=True):
        if not experiences:
            continue
        part = slice(start, start + len(experiences))
        start += len(experiences)
        group_columns = columns.of_question(part)
        positions, values = selector.choose(group_columns, 1, state.rng)
        chosen = int(positions[0])
        position = part.start + chosen
        is_external = experiences[chosen].row < 0
        group.replay = Replay(experiences[chosen], scores.log_probs[position], scores.entropies[position], is_external)
        chosen_rows += [] if is_external else [experiences[chosen].row]
        _record(state, report, group, experiences, group_columns, values)
    state.replay_buffer.record_uses(np.array(chosen_rows, dtype=np.int64))


def _record(
    state: ExGRPOState,
    report: StepReport,
    group: RolloutGroup,
    experiences: Sequence[Experience],
    columns: CandidateColumns,
    values: np.ndarray,
) -> None:
    replay = group.replay
    if replay is None or replay.is_external:
        return
    index = group.question.index
    bucket = state.replay_buffer.bucket_of(index)
    report.selections.append(
        Selection(
            question_index=index,
            bucket=-1 if bucket is None else bucket,
            trajectory_ids=np.array([candidate.trajectory_id for candidate in experiences], dtype=np.int64),
            born_steps=np.array([candidate.born_step for candidate in experiences], dtype=np.int64),
            num_tokens=np.array([candidate.token_ids.size for candidate in experiences], dtype=np.int64),
            entropies=columns.entropies.astype(np.float32),
            nlls=columns.nlls.astype(np.float32),
            scores=values.astype(np.float32),
            chosen=next(i for i, candidate in enumerate(experiences) if candidate.row == replay.experience.row),
        )
    )
    report.buffer_events.append(
        BufferEvent(BufferEventKind.REPLAYED, index, replay.experience.trajectory_id, bucket, bucket)
    )
