"""Lines 9 to 15 of Algorithm 1: score the candidates of drawn questions and put o* into their groups."""

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import PolicyEngine
from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import BufferEvent, BufferEventKind, Selection, StepReport
from exgrpo_core.sums import row_lengths, token_sums
from exgrpo_core.types import (
    Experience,
    Float32Array,
    Float64Array,
    GroupPlan,
    Int64Array,
    Replay,
    RolloutGroup,
    TrajectoryScores,
)

_NO_ROWS: Int64Array = np.empty(0, dtype=np.int64)


def list_candidates(
    state: ExGRPOState, config: ExGRPOConfig, groups: Sequence[RolloutGroup]
) -> list[Sequence[Experience]]:
    """Return the candidates of each group: the stored trajectories of a question that was drawn to be replayed.

    A candidate budget leaves out those of highest entropy when last scored. A group without stored candidates whose
    plan leaves room, which has fewer than K rollouts, has the trajectory from a file as its only one, if there is one.
    """
    rows = [_rows(state, config, group.plan) for group in groups]
    # One gather for all questions: cold reads of the segments overlap.
    stored = iter(state.replay_buffer.experiences(np.concatenate(rows)) if any(part.size for part in rows) else ())
    candidates: list[Sequence[Experience]] = []
    for group, part in zip(groups, rows, strict=True):
        if part.size:
            candidates.append(list(islice(stored, part.size)))
        else:
            has_room = group.plan is None or group.plan.num_rollouts < config.rollouts_per_question
            external = state.external.get(group.question.index) if has_room else None
            candidates.append([] if external is None else [external])
    return candidates


def _rows(state: ExGRPOState, config: ExGRPOConfig, plan: GroupPlan | None) -> Int64Array:
    if plan is None or plan.num_replays is None or config.candidate_budget is None:
        return _NO_ROWS if plan is None else plan.candidates
    rows = plan.candidates
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
    report: StepReport,
    candidates: Sequence[Sequence[Experience]],
    scores: TrajectoryScores,
) -> None:
    """Give every group that has candidates its replayed trajectories, and record the selection."""
    if not scores.log_probs:
        return
    buffer, selector = state.replay_buffer, state.strategies.trajectory_selector
    stored = [candidate for experiences in candidates for candidate in experiences]
    rows = np.array([candidate.row for candidate in stored], dtype=np.int64)
    is_stored = rows >= 0
    num_replays = np.zeros_like(rows)
    num_replays[is_stored] = buffer.num_replays(rows[is_stored])
    columns = mean_scores(scores, num_replays, stored)
    buffer.record_entropies(rows[is_stored], columns.entropies[is_stored])
    replayed_rows: list[int] = []
    start = 0
    for group, experiences in zip(report.groups, candidates, strict=True):
        if not experiences:
            continue
        chosen = tuple(range(len(experiences)))
        if group.plan is not None and group.plan.num_replays is not None:
            of_question = columns.of_question(slice(start, start + len(experiences)))
            positions, values = selector.choose(of_question, group.plan.num_replays, state.rng)
            chosen = tuple(positions.tolist())
            report.selections.append(_selection(state, group, experiences, of_question, values, chosen))
        group.replays = tuple(_replay(group, experiences[i], scores, start + i) for i in chosen)
        start += len(experiences)
        replayed_rows += [replay.experience.row for replay in group.replays if not replay.is_external]
        report.buffer_events += _replayed_events(state, group)
    buffer.record_replays(np.array(replayed_rows, dtype=np.int64))


def _replay(group: RolloutGroup, experience: Experience, scores: TrajectoryScores, position: int) -> Replay:
    plan, advantage = group.plan, None
    if plan is not None and plan.advantages is not None and experience.row >= 0:
        advantage = float(plan.advantages[plan.candidates == experience.row][0])
    weight = 1.0 if plan is None else plan.weight
    old_log_probs, entropies = scores.log_probs[position], scores.entropies[position]
    return Replay(experience, old_log_probs, entropies, experience.row < 0, weight, advantage)


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
    chosen: tuple[int, ...],
) -> Selection:
    bucket = state.replay_buffer.bucket_of(group.question.index)
    return Selection(
        question_index=group.question.index,
        bucket=-1 if bucket is None else bucket,
        trajectory_ids=np.array([candidate.trajectory_id for candidate in experiences], dtype=np.int64),
        rollout_steps=np.array([candidate.rollout_step for candidate in experiences], dtype=np.int64),
        num_tokens=np.array([candidate.token_ids.size for candidate in experiences], dtype=np.int64),
        entropies=columns.entropies.astype(np.float32),
        nlls=columns.nlls.astype(np.float32),
        scores=values.astype(np.float32),
        chosen=chosen,
    )


def mean_scores(
    scores: TrajectoryScores, num_replays: Int64Array | None = None, experiences: Sequence[Experience] | None = None
) -> CandidateColumns:
    """Return the means of token-level scores over exactly the T_i tokens of each candidate: nothing is padded.

    `num_replays` and `experiences` become columns as they are.
    """
    lengths = row_lengths(scores.log_probs)

    def means(rows: Sequence[Float32Array], value: Callable[[Float64Array], Float64Array] | None) -> Float32Array:
        return (token_sums(rows, value) / lengths).astype(np.float32)

    nlls, sampled = means(scores.log_probs, np.negative), means(scores.log_probs, _sampled_entropy)
    return CandidateColumns(means(scores.entropies, None), nlls, lengths, sampled, num_replays, experiences)


def _sampled_entropy(log_probs: Float64Array) -> Float64Array:
    values: Float64Array = -np.exp(log_probs) * log_probs
    return values


def within_budget(last_entropies: Float32Array, budget: int | None) -> Int64Array:
    """Return the positions of at most `budget` candidates, ascending; `last_entropies` are NaN where never scored.

    The candidate of lowest entropy as last scored is kept first, then those never scored, newest first, then the
    others by entropy. Candidates are oldest first, as in the buffer; of equal entropies the oldest is kept first.
    """
    num_candidates = last_entropies.size
    if budget is None or num_candidates <= budget:
        return np.arange(num_candidates)
    is_new = np.isnan(last_entropies)
    newest_first = np.arange(num_candidates)[::-1] - num_candidates
    ranks = np.where(is_new, newest_first, last_entropies.astype(np.float64))
    if not is_new.all():
        ranks[np.nanargmin(last_entropies)] = -np.inf
    return np.sort(np.argsort(ranks, kind="stable")[:budget])
