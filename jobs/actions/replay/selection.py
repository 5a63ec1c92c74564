"""Stage selection: buckets, drawn questions, candidates, the choice, what was replayed, and the buckets afterwards."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from exgrpo.db.rows.replays import SelectionRow
from exgrpo.db.rows.runs import CandidateRow
from exgrpo.jobs.actions.replay import other_settings
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, Stage, compare, compare_ids, unknown
from exgrpo.jobs.actions.replay.recorded_step import BucketsThen, RecordedStep, Tokens, part_of
from exgrpo_core.config import ExGRPOConfig, LogProbRefresh, RetiredRule, RewardKind, SamplerCorrection
from exgrpo_core.errors import NotRecordedError
from exgrpo_core.methods.columns import QuestionColumns
from exgrpo_core.methods.loading import QUESTIONS, TRAJECTORIES, find_part, names_of
from exgrpo_core.methods.protocols import QuestionSampler, ReplayMethod, TrajectorySelector
from exgrpo_core.policy_optimization.importance import stored_log_probs
from exgrpo_core.step.collection import group_buckets, is_solved, next_bucket, successes
from exgrpo_core.types import Trajectory

FLOAT16_STEP = 2.0**-11
"""Largest relative error of a number stored as float16, as token entropies are."""
_FLOAT32_TOLERANCE = 2e-5
_PROBABILITY_TOLERANCE = 1e-9
MAX_READ_AT_ROLLOUT, MAX_BYTES_AT_ROLLOUT = 32, 96 << 20
"""Tokens of a rollout lie in the file of its step: at most so many such steps are read, and bytes of them."""
_S = Stage.SELECTION


def selection_facts(recorded: RecordedStep, config: ExGRPOConfig) -> list[Fact]:
    """Return every fact of the stage; none of a step that neither draws nor collects."""
    of_questions = chain.from_iterable(question_facts(recorded, config).values())
    return [*_draw_facts(recorded, config), *of_questions, *_bucket_facts(recorded, config)]


def question_facts(recorded: RecordedStep, config: ExGRPOConfig) -> dict[int, list[Fact]]:
    """Return the facts of each question that was drawn: its candidates, the choice, and the replayed tokens."""
    estimator: TrajectorySelector | None = part_of(TRAJECTORIES, config)
    # The paper's plan replays r of all that is stored; other plans can choose candidates and r themselves.
    is_papers = isinstance(part_of(QUESTIONS, config), QuestionSampler)
    is_part = config.candidate_budget is not None or not is_papers
    num_wanted = config.replays_per_group if is_papers else None
    before = BucketsThen(recorded.moves, config.rollouts_per_question, recorded.step - 1)
    replayed = {number: values for (number, is_replayed), values in recorded.tokens.items() if is_replayed}
    files = {row.chosen_trajectory_id: row.rollout_file for row in recorded.selections if row.rollout_file}
    read = list(dict.fromkeys(files.values()))[:MAX_READ_AT_ROLLOUT]
    while sum(map(recorded.num_bytes, read)) > MAX_BYTES_AT_ROLLOUT:
        read.pop()
    at_rollout = recorded.tokens_at_rollout({number: file for number, file in files.items() if file in read})
    facts: dict[int, list[Fact]] = {}
    for row in recorded.selections:
        index, number = row.question_index, row.chosen_trajectory_id
        scored = recorded.candidates.get(index, [])
        chosen = next((one for one in scored if one.trajectory_id == number), None)
        found = [compare(_S, "bucket of a drawn question", row.bucket, before.bucket_of(index), question=index)]
        found += _candidate_facts(recorded, config, index, scored, is_part)
        found += check_choice(row, scored, estimator, num_wanted)
        is_refreshed = config.refresh is not LogProbRefresh.NEVER
        first = _as_stored(at_rollout.get(number), config)
        found += check_tokens(row, chosen, replayed.get(number), first, is_refreshed)
        facts[index] = found
    return facts


def _draw_facts(recorded: RecordedStep, config: ExGRPOConfig) -> Iterator[Fact]:
    if not recorded.buckets:
        return
    before = BucketsThen(recorded.moves, config.rollouts_per_question, recorded.step - 1 - int(recorded.is_ahead))
    sizes, counts = before.bucket_sizes(), {row.bucket: row for row in recorded.buckets}
    yield compare(
        _S, "bucket sizes", np.array([counts[k].num_questions if k in counts else -1 for k in range(sizes.size)]), sizes
    )
    sampler: ReplayMethod | None = part_of(QUESTIONS, config)
    if sampler is None:
        yield unknown(_S, "drawn questions", f"{config.question_selection} is code that this machine does not run.")
        return
    if not isinstance(sampler, QuestionSampler):
        yield unknown(_S, "drawn questions", f"{sampler.name} plans steps of its own, which this does not do again.")
        return
    if recorded.is_ahead:
        yield unknown(_S, "drawn questions", "The questions were drawn in the step before, without those of that step.")
        return
    rng = np.random.Generator(np.random.PCG64(0))
    if recorded.random_state is not None:
        rng.bit_generator.state = recorded.random_state
    columns = QuestionColumns(before, recorded.step)  # type: ignore[arg-type] # of the buffer it knows the buckets
    try:
        draw = sampler.draw(columns, config.num_experiential_wanted, rng)
    except NotRecordedError:
        yield unknown(_S, "drawn questions", f"{sampler.name} also reads other columns than the buckets.")
        return
    given = np.array([row.probability for row in recorded.buckets if row.bucket > 0], dtype=np.float64)
    yield compare(_S, "bucket probabilities", given, draw.bucket_probabilities, tolerance=_PROBABILITY_TOLERANCE)
    if recorded.random_state is None:
        note = "The state of the random generator was not recorded; runs from this version on record it."
        yield unknown(_S, "drawn questions", note)
        return
    drawn = set(draw.question_indices.tolist())
    replayed = {row.question_index for row in recorded.trajectories if row.is_replayed and not row.is_external}
    num_failed = int(recorded.line.get("metrics", {}).get("rollouts/failed_groups", 0))
    missing = sorted(drawn - replayed)
    for index in sorted(drawn | replayed):
        is_lost = index in missing and len(missing) <= num_failed
        is_same = is_lost or (index in drawn) == (index in replayed)
        was, is_now = (("drawn" if index in group else "not drawn") for group in (replayed, drawn))
        outcome = Outcome.SAME if is_same else Outcome.DIFFERS
        yield Fact(_S, "drawn questions", outcome, index, recorded=was, computed=is_now)
    by_bucket = np.bincount(before.buckets_of(draw.question_indices), minlength=sizes.size)[1:]
    columns_of = {"draws by bucket": ("num_drawn", by_bucket), "overflows by bucket": ("overflow", draw.overflows)}
    for name, (field, computed) in columns_of.items():
        yield compare(
            _S, name, np.array([getattr(row, field) for row in recorded.buckets if row.bucket > 0]), np.array(computed)
        )


def _candidate_facts(
    recorded: RecordedStep, config: ExGRPOConfig, index: int, scored: Sequence[CandidateRow], is_part: bool
) -> Iterator[Fact]:
    """Compare the candidates with what is stored. If `is_part`, the run scored only some of it."""
    stored = {row.trajectory_id: row for row in recorded.stored[index]}
    numbers = [row.trajectory_id for row in scored]
    computed = [number for number in stored if not is_part or number in numbers]
    yield compare(_S, "candidates", sorted(numbers), sorted(computed), question=index)
    for row in scored:
        known = stored.get(row.trajectory_id)
        if known is not None:
            where = {"question": index, "trajectory": row.trajectory_id}
            yield compare(_S, "tokens of a candidate", row.num_tokens, known.num_tokens, **where)
            if config.refresh is LogProbRefresh.NEVER:
                yield compare(_S, "step that wrote a candidate", row.rollout_step, known.rollout_step, **where)


def _bucket_facts(recorded: RecordedStep, config: ExGRPOConfig) -> Iterator[Fact]:
    """Compare where questions were moved after the update, and how many trajectories were stored of each."""
    method: ReplayMethod | None = part_of(QUESTIONS, config)
    if "is_replay_open" not in recorded.line or method is None:
        return
    if type(method).keep not in {find_part(QUESTIONS, name).keep for name in names_of(QUESTIONS)}:
        note = f"{config.question_selection} has a rule of its own for what is stored, which may read tokens and texts."
        yield unknown(_S, "bucket after the step", note)
        yield unknown(_S, "trajectories stored", note)
        return
    collects = config.replays_experience and bool(recorded.line["is_replay_open"])
    retires = config.reward_kind is RewardKind.BINARY and config.retired is not RetiredRule.NEVER
    before = BucketsThen(recorded.moves, config.rollouts_per_question, recorded.step - 1)
    moved: dict[int, int | None] = {}
    num_stored: dict[int, int] = {}
    for change in recorded.changes:
        if change.kind in {"moved", "retired"}:
            moved[change.question_index] = change.bucket_to
        elif change.kind in {"inserted", "duplicate"}:
            num_stored[change.question_index] = num_stored.get(change.question_index, 0) + 1
    groups = [group for group in recorded.rollout_groups() if group.trajectories]
    for group, bucket in zip(groups, group_buckets(groups, config) if groups else (), strict=True):
        index = group.question.index
        old = before.bucket_of(index)
        actual = moved.get(index, old)
        expected, kept = old, 0
        if retires and is_solved(group):
            expected = None
        elif collects and index not in before.retired:
            stored = method.keep(group, successes(group, config.reward_kind))
            kept = len(stored or ())
            expected = (
                next_bucket(config, bucket, old, group.is_helped)
                if stored is not None and (kept or old is not None)
                else old
            )
        yield compare(_S, "bucket after the step", actual, expected, question=index)
        yield compare(_S, "trajectories stored", num_stored.get(index, 0), kept, question=index)


def check_choice(
    selection: SelectionRow, candidates: Sequence[CandidateRow], estimator: TrajectorySelector | None,
    num_wanted: int | None = 1,
) -> list[Fact]:  # fmt: skip
    """Check that `num_wanted` candidates were chosen, the first is replayed, and it is the estimator's argmin.

    With None any number can be chosen, if the replayed one is among them.
    Without an estimator, where the run's is not known here, the lowest recorded score is expected.
    """
    chosen = [row.trajectory_id for row in candidates if row.is_chosen]
    number, index = selection.chosen_trajectory_id, selection.question_index
    num_chosen = len(chosen) if number in chosen else 0
    expected = max(len(chosen), 1) if num_wanted is None else num_wanted
    return [
        compare(_S, "number chosen", num_chosen, min(expected, len(candidates)), question=index),
        compare_ids(_S, "replayed is the chosen", selection.replayed_trajectory_id, number, index, number),
        *_scores(candidates, estimator),
        _argmin(selection, candidates, estimator),
    ]


def check_tokens(
    selection: SelectionRow, chosen: CandidateRow | None, replayed: Tokens | None, at_rollout: Tokens | None,
    has_new_log_probs: bool = False,
) -> list[Fact]:  # fmt: skip
    """Check the replayed tokens: aligned, scored as recorded, and the same as when they were rolled out.

    `has_new_log_probs`: the run replaces stored log-probs, which then need not be those of the rollout.
    """
    where = {"question": selection.question_index, "trajectory": selection.chosen_trajectory_id}
    if replayed is None or replayed["token_ids"] is None:
        return [compare(_S, "tokens", None, "values of the replayed tokens", **where)]
    ids, entropies, log_probs, behavior = (
        np.asarray(replayed[name] if replayed[name] is not None else (), dtype=np.float64)
        for name in ("token_ids", "entropies", "log_probs", "behavior_log_probs")
    )
    num_tokens = selection.num_tokens if chosen is None else chosen.num_tokens
    sizes = [ids.size, entropies.size, log_probs.size, behavior.size, selection.num_tokens]
    aligned = compare(_S, "one value for each token", sizes, [num_tokens] * len(sizes), **where)
    if aligned.outcome is Outcome.DIFFERS or not ids.size:
        return [aligned]
    ratio = float(np.exp(log_probs - behavior).mean())
    recorded_nll = None if selection.mean_log_prob is None else -selection.mean_log_prob
    values = [("entropy", selection.mean_entropy, entropies.mean(), FLOAT16_STEP)]
    values.append(("NLL", recorded_nll, -log_probs.mean(), _FLOAT32_TOLERANCE))
    values.append(("importance ratio", selection.mean_ratio, ratio, _FLOAT32_TOLERANCE))
    if chosen is not None:
        values.append(("entropy that chose", chosen.entropy, entropies.mean(), FLOAT16_STEP))
        values.append(("NLL that chose", chosen.nll, -log_probs.mean(), _FLOAT32_TOLERANCE))
    facts = [aligned, _ranges(entropies, log_probs, behavior, where)]
    facts += [
        compare(_S, name, recorded, float(computed), tolerance=tolerance, **where)
        for name, recorded, computed, tolerance in values
    ]
    return [*facts, *_as_at_rollout(ids, behavior, at_rollout, has_new_log_probs, where)]


def _as_stored(first: Tokens | None, config: ExGRPOConfig) -> Tokens | None:
    """Return a rollout with the log-probs that the buffer stores of it, None in their place if these are not known."""
    if first is None or first["log_probs"] is None or config.sampler_correction is SamplerCorrection.NONE:
        return first
    sampler = first["behavior_log_probs"]
    item = Trajectory(0, first["token_ids"], first["log_probs"], 0.0, sampler_log_probs=sampler)
    return {**first, "log_probs": None if sampler is None else stored_log_probs(item, config)}


def _scores(candidates: Sequence[CandidateRow], estimator: TrajectorySelector | None) -> Iterator[Fact]:
    if estimator is None or not other_settings.is_recomputable(estimator):
        return
    computed = estimator.score(other_settings.recorded_columns(candidates))
    for row, score in zip(candidates, computed.tolist(), strict=True):
        yield compare(
            _S, "score of a candidate", row.score, score, tolerance=_FLOAT32_TOLERANCE, question=row.question_index,
            trajectory=row.trajectory_id,
        )  # fmt: skip


def _argmin(selection: SelectionRow, candidates: Sequence[CandidateRow], estimator: TrajectorySelector | None) -> Fact:
    name, index = "best score is chosen", selection.question_index
    if candidates and all(np.isnan(row.score) for row in candidates):
        return unknown(_S, name, "A choice without scores cannot be made again.", index)
    if estimator is not None and other_settings.is_recomputable(estimator):
        expected = other_settings.rechoose(candidates, estimator)
    else:
        expected = min(candidates, key=lambda row: row.score).trajectory_id if candidates else None
    return compare_ids(_S, name, selection.chosen_trajectory_id, expected, index, expected)


def _as_at_rollout(
    ids: np.ndarray, behavior: np.ndarray, first: Tokens | None, has_new_log_probs: bool, where: Mapping[str, int]
) -> list[Fact]:
    if first is None or first["token_ids"] is None or first["log_probs"] is None:
        note = (
            "Tokens at rollout were not stored, are in another run, or are too many; `recording.token_data` keeps them."
        )
        return [unknown(_S, "same as at rollout", note, where["question"])]
    same_tokens = compare(_S, "same tokens as at rollout", ids, np.asarray(first["token_ids"]), **where)
    if has_new_log_probs:
        name = "same log-probs as at rollout"
        return [same_tokens, unknown(_S, name, "The run refreshes stored log-probs.", where["question"])]
    log_probs = np.asarray(first["log_probs"], dtype=np.float64)
    return [same_tokens, compare(_S, "same log-probs as at rollout", behavior, log_probs, **where)]


def _ranges(entropies: np.ndarray, log_probs: np.ndarray, behavior: np.ndarray, where: Mapping[str, int]) -> Fact:
    """Compare with the nearest value in range: entropies at least 0, log-probs at most 0, all finite."""
    values = np.concatenate((-entropies, log_probs, behavior))
    is_good = np.isfinite(values) & (values <= _FLOAT32_TOLERANCE)
    if is_good.all():
        return Fact(
            _S, "possible values", Outcome.SAME, where["question"], where["trajectory"], num_compared=values.size
        )
    first = int(np.argmin(is_good))
    token = first % entropies.size
    return Fact(
        _S, "possible values", Outcome.DIFFERS, where["question"], where["trajectory"], token,
        float(-values[first] if first < entropies.size else values[first]), "in range", float("nan"), values.size,
        num_different=int((~is_good).sum()),
    )  # fmt: skip
