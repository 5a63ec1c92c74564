"""A recorded step next to the same step with other settings: draws and choices, rewards and advantages."""

import dataclasses
from collections.abc import Iterator, Sequence

from exgrpo.db.queries import buffer
from exgrpo.jobs.actions.replay.advantages import advantage_facts
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, ReplayError, Stage, compare, compare_ids, unknown
from exgrpo.jobs.actions.replay.other_settings import (
    QuestionDraw,
    Settings,
    other_choices,
    recorded_draw,
    redraw,
    selector_of,
)
from exgrpo.jobs.actions.replay.recorded_step import BucketsThen, RecordedStep
from exgrpo.jobs.actions.replay.rewards import reward_facts
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import TrainSpec, load_preset
from exgrpo_core.config import GAUSSIAN, ExGRPOConfig

_OF_RUN = ("batch_size", "mini_batch_size", "rollouts_per_question", "max_prompt_tokens", "max_response_tokens", "seed")
"""What a method leaves as the run has it."""
_DRAWS = frozenset({"bucket_center", "bucket_spread", "experience_ratio", "question_selection"})
_CHOICES = frozenset({"trajectory_selection"})
ON_ADVANTAGES = frozenset({"normalize_by_std", "mask_range"})
ON_LOSS = frozenset({
    "loss_aggregation", "policy_loss_factor", "clipping", "clip_epsilon", "clip_epsilon_high", "fresh_objective",
    "shapes_policy", "shaping_beta", "corrects_importance", "off_policy_correction", "sampler_correction",
    "sampler_ratio_limit", "entropy_coefficient", "kl_coefficient", "max_response_tokens", "strategy_settings",
})  # fmt: skip
"""Settings that act on the loss, after the stages that are computed here."""
NOT_RECORDED = frozenset({
    "batch_size", "mini_batch_size", "rollouts_per_question", "temperature", "replays_per_group", "candidate_budget",
    "start_pass_rate", "uses_external_experience", "reward_kind",
})  # fmt: skip
"""Settings with which the step would have had other rollouts, replays or mini-batches."""


def changed_spec(spec: TrainSpec, settings: Sequence[str], method: str | None) -> TrainSpec:
    """Return a run's specification with the algorithm of a preset, which the run's sizes stay with, and other settings.

    Raises:
        SpecError: There is no such preset or field, or a value is wrong.
    """
    if method is not None:
        kept = {name: getattr(spec.algorithm, name) for name in _OF_RUN}
        algorithm = dataclasses.replace(load_preset(method).algorithm, **kept)
        spec = spec.model_copy(update={"algorithm": algorithm})
    return apply_settings(spec, settings, "The setting")


def changed_fields(spec: TrainSpec, other: TrainSpec) -> set[str]:
    """Return the settings of the algorithm that differ."""
    names = (field.name for field in dataclasses.fields(ExGRPOConfig))
    return {name for name in names if getattr(spec.algorithm, name) != getattr(other.algorithm, name)}


def other_facts(recorded: RecordedStep, spec: TrainSpec, other: TrainSpec) -> list[Fact]:
    """Return facts whose recorded values are the step's, and whose computed values are those of other settings."""
    before, after = spec.algorithm, other.algorithm
    changed = changed_fields(spec, other)
    facts = [*_selected(recorded, before, after, changed)] if changed & (_DRAWS | _CHOICES) else []
    if spec.data != other.data:
        facts += reward_facts(recorded, other)
    if changed & ON_ADVANTAGES:
        facts += advantage_facts(recorded, after)
    is_known = _DRAWS | _CHOICES | ON_ADVANTAGES | ON_LOSS | NOT_RECORDED
    for name in sorted(changed & ON_LOSS):
        facts.append(_no_effect(f"algorithm.{name}", "It acts on the loss; draws, rewards and advantages stay."))
    for name in sorted(changed & NOT_RECORDED):
        note = "With it the step would have other rollouts, replays or mini-batches, which are not recorded."
        facts.append(unknown(Stage.SELECTION, f"algorithm.{name}", note))
    if spec.optim != other.optim:
        facts.append(_no_effect("optim", "It acts on the update, which `exgrpo replay --update` executes."))
    for name in sorted(changed - is_known):
        facts.append(_no_effect(f"algorithm.{name}", "It cannot matter in a step whose rollouts are recorded."))
    if not facts:
        facts.append(_no_effect("settings", "They are those of the run, or none that a recorded step depends on."))
    return facts


def _no_effect(name: str, note: str) -> Fact:
    return dataclasses.replace(unknown(Stage.SELECTION, name, note), outcome=Outcome.NO_EFFECT)


def _selected(recorded: RecordedStep, before: ExGRPOConfig, after: ExGRPOConfig, changed: set[str]) -> Iterator[Fact]:
    rows = [row for of_question in recorded.candidates.values() for row in of_question]
    if not rows:
        yield _no_effect("drawn questions", "The step chose no trajectory among candidates.")
        return
    if changed & _DRAWS and not before.question_selection == after.question_selection == GAUSSIAN:
        rule = next(name for name in (after.question_selection, before.question_selection) if name != GAUSSIAN)
        raise ReplayError(f"question_selection: draws of {rule} cannot be compared, since it uses no mu and sigma.")
    name = after.trajectory_selection if changed & _CHOICES else None
    selector = None if name is None else selector_of(dataclasses.asdict(after), name)
    state = BucketsThen(recorded.moves, before.rollouts_per_question, recorded.step - 1)
    size = before.rollouts_per_question
    then = {index: bucket for bucket in range(1, size + 1) for index in state.members(bucket).tolist()}
    settings = Settings(after.bucket_center, after.bucket_spread, after.experience_ratio, selector)
    draw = QuestionDraw({row.question_index: row.bucket for row in rows}, {}, {}, {})
    if changed & _DRAWS:
        draw = redraw(recorded_draw(then, recorded.buckets, rows, before.batch_size, size), settings, seed=0)
    stored = []
    if draw.added:
        stored = buffer.stored_candidates(recorded.database, recorded.run_id, recorded.step, tuple(draw.added))
    for choice in other_choices(rows, stored, draw, selector):
        index = choice.question_index
        was, is_now = index not in draw.added, index not in draw.dropped
        texts = ["drawn" if is_drawn else "not drawn" for is_drawn in (was, is_now)]
        yield compare(Stage.SELECTION, "drawn questions", *texts, question=index)
        if was and is_now:
            number = None if choice.choice is None else choice.choice.trajectory_id
            yield compare_ids(Stage.SELECTION, "chosen trajectory", choice.recorded_id, number, index)
