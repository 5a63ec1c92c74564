"""A recorded step next to the same step with other settings: draws and choices, rewards and advantages."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto

from exgrpo.db.queries import buffer
from exgrpo.jobs.actions.replay.advantages import advantage_facts
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, Stage, compare, compare_ids, unknown
from exgrpo.jobs.actions.replay.other_settings import (
    RecordedDraw,
    Scored,
    is_recomputable,
    rechoose,
    redraw,
    selector_of,
)
from exgrpo.jobs.actions.replay.recorded_step import BucketsThen, RecordedStep
from exgrpo.jobs.actions.replay.rewards import reward_facts
from exgrpo.jobs.specs.presets import preset_names
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset
from exgrpo_core.config import GAUSSIAN, ExGRPOConfig
from exgrpo_core.methods.loading import CORRECTION, FRESH, QUESTIONS, TRAJECTORIES, fields_of, methods

_OF_RUN = (
    "batch_size", "mini_batch_size", "rollouts_per_question", "max_prompt_tokens", "max_response_tokens", "seed",
    "start_pass_rate",
)  # fmt: skip
"""What a method leaves as the run has it."""
PRESET_OF_METHODS = "chains-exgrpo"
"""The preset that a replay method changes."""
_PREFIX = "strategy_settings."


class Effect(Enum):
    """What a setting of the algorithm acts on."""

    DRAWS = auto()
    CHOICES = auto()
    ADVANTAGES = auto()
    LOSS = auto()
    """The loss alone, after the stages that are computed here."""
    RECORD = auto()
    """The rollouts, replays or mini-batches of a step: the record has only those that were."""
    NOTHING = auto()
    """Nothing of a recorded step."""


_EFFECTS = {
    Effect.DRAWS: ("bucket_center", "bucket_spread", "experience_ratio", QUESTIONS),
    Effect.CHOICES: (TRAJECTORIES,),
    Effect.ADVANTAGES: ("normalize_by_std", "mask_range"),
    Effect.LOSS: (
        "loss_aggregation", "policy_loss_factor", "clipping", "clip_epsilon", "clip_epsilon_high", FRESH,
        "shapes_policy", "shaping_beta", "corrects_importance", CORRECTION, "sampler_correction",
        "sampler_ratio_limit", "entropy_coefficient", "kl_coefficient", "max_response_tokens",
    ),
    Effect.NOTHING: ("max_prompt_tokens",),
}  # fmt: skip
"""All other settings act on the record."""
_OF_PARTS = {
    QUESTIONS: Effect.RECORD, TRAJECTORIES: Effect.CHOICES, CORRECTION: Effect.LOSS, FRESH: Effect.LOSS,
}  # fmt: skip
"""What a setting acts on that only parts read, by the setting that names the part."""


def changed_spec(spec: TrainSpec, settings: Sequence[str], method: str | None) -> TrainSpec:
    """Return a run's specification with another method and other settings.

    `method` names a replay method, by its part or as studies do, a class of one's own, or a preset. A replay method
    changes only what makes it and what makes the method of the run. A preset gives its whole algorithm. The sizes and
    the delayed start of the run stay.

    Raises:
        SpecError: There is no such method, preset or field, or a value is wrong.
    """
    if method is None:
        return apply_settings(spec, settings, "The setting")
    known = {name: about.settings for part, about in methods().items() for name in (part, about.cell)}
    if ":" in method:
        known[method] = {QUESTIONS: method}
    if method not in known and method not in preset_names():
        raise SpecError(
            f"--method: there is neither a replay method nor a preset {method!r}; "
            f"the methods are {', '.join(methods())}, and `exgrpo query presets` lists the presets."
        )
    algorithm, wanted = spec.algorithm, known.get(method, {})
    if method in known:
        usual = load_preset(PRESET_OF_METHODS).algorithm
        parts = algorithm.question_selection, algorithm.off_policy_correction
        own = {QUESTIONS, TRAJECTORIES, CORRECTION}.union(*(known.get(name, {}) for name in parts))
        changes = {name: getattr(usual, name) for name in own.difference(_OF_RUN)}
        if algorithm.question_selection != wanted.get(QUESTIONS, usual.question_selection):
            changes["strategy_settings"] = usual.strategy_settings
        algorithm = dataclasses.replace(algorithm, **changes)
    else:
        kept = {name: getattr(algorithm, name) for name in _OF_RUN}
        algorithm = dataclasses.replace(load_preset(method).algorithm, **kept)
    texts = [f"algorithm.{name}={json.dumps(value)}" for name, value in wanted.items()]
    return apply_settings(spec.model_copy(update={"algorithm": algorithm}), [*texts, *settings], "The setting")


def changed_fields(spec: TrainSpec, other: TrainSpec, *, is_replay_open: bool = False) -> dict[Effect, set[str]]:
    """Return the settings of the algorithm that differ, by what they act on.

    In a step in which replay is open, a method without a delayed start replays as one with it.
    """
    before, after = (_flat(of.algorithm) for of in (spec, other))
    changed: dict[Effect, set[str]] = {effect: set() for effect in Effect}
    if is_replay_open and after["start_pass_rate"] is None:
        del before["start_pass_rate"], after["start_pass_rate"]
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            changed[_effect(name, (spec.algorithm, other.algorithm))].add(name)
    return changed


def _flat(config: ExGRPOConfig) -> dict[str, object]:
    values = dataclasses.asdict(config)
    return values | {f"{_PREFIX}{name}": value for name, value in values.pop("strategy_settings").items()}


def _effect(name: str, configs: Sequence[ExGRPOConfig]) -> Effect:
    if name == "recent_steps" or name.startswith(_PREFIX):
        owners = (
            effect
            for setting, effect in _OF_PARTS.items()
            for config in configs
            if name.removeprefix(_PREFIX) in fields_of(setting, config)
        )
        return next(owners, Effect.NOTHING)
    return next((effect for effect, names in _EFFECTS.items() if name in names), Effect.RECORD)


def other_facts(recorded: RecordedStep, spec: TrainSpec, other: TrainSpec) -> list[Fact]:
    """Return facts whose recorded values are the step's, and whose computed values are those of other settings."""
    before, after = spec.algorithm, other.algorithm
    changed = changed_fields(spec, other, is_replay_open=bool(recorded.line.get("is_replay_open")))
    facts = [*_selected(recorded, before, after, changed)] if changed[Effect.DRAWS] or changed[Effect.CHOICES] else []
    if spec.data != other.data:
        facts += reward_facts(recorded, other)
    if changed[Effect.ADVANTAGES]:
        facts += advantage_facts(recorded, after)
    for name in sorted(changed[Effect.LOSS]):
        note = "It acts on the loss. Draws, rewards and advantages stay."
        facts.append(dataclasses.replace(_no_effect(f"algorithm.{name}", note), stage=Stage.LOSS))
    for name in sorted(changed[Effect.RECORD]):
        note = "With it the step could have had other rollouts, replays or mini-batches, and these are not recorded."
        facts.append(unknown(Stage.SELECTION, f"algorithm.{name}", note))
    if spec.optim != other.optim:
        facts.append(_no_effect("optim", "It acts on the update, which `exgrpo replay --update` executes."))
    for name in sorted(changed[Effect.NOTHING]):
        facts.append(_no_effect(f"algorithm.{name}", "It cannot matter in a step whose rollouts are recorded."))
    if not facts:
        facts.append(_no_effect("settings", "They are those of the run, or none that a recorded step depends on."))
    return facts


def _no_effect(name: str, note: str) -> Fact:
    return dataclasses.replace(unknown(Stage.SELECTION, name, note), outcome=Outcome.NO_EFFECT)


def _selected(
    recorded: RecordedStep, before: ExGRPOConfig, after: ExGRPOConfig, changed: Mapping[Effect, set[str]]
) -> Iterator[Fact]:
    rows = [row for of_question in recorded.candidates.values() for row in of_question]
    if not rows:
        yield _no_effect("drawn questions", "The step chose no trajectory among candidates.")
        return
    if changed[Effect.DRAWS] and not before.question_selection == after.question_selection == GAUSSIAN:
        rule = next(name for name in (after.question_selection, before.question_selection) if name != GAUSSIAN)
        note = f"Only draws by buckets (question_selection: {GAUSSIAN}) are drawn again, and not those of {rule}."
        yield unknown(Stage.SELECTION, "drawn questions", note)
        return
    then = drawn = {row.question_index: row.bucket for row in rows}
    chosen = {row.question_index: row.trajectory_id for row in reversed(rows) if row.is_chosen}
    if changed[Effect.DRAWS]:
        state = BucketsThen(recorded.moves, before.rollouts_per_question, recorded.step - 1)
        members = {bucket: state.members(bucket) for bucket in range(1, before.rollouts_per_question + 1)}
        probabilities = {row.bucket: row.probability for row in recorded.buckets}
        draw = RecordedDraw(recorded.step, before.batch_size, members, drawn, probabilities)
        then = redraw(draw, after.bucket_center, after.bucket_spread, after.experience_ratio)
    scored: dict[int, list[Scored]] = {index: [*of_one] for index, of_one in recorded.candidates.items()}
    if added := sorted(then.keys() - drawn.keys()):
        for row in buffer.stored_candidates(recorded.database, recorded.run_id, recorded.step, added):
            scored.setdefault(row.question_index, []).append(row)
    selector = selector_of(dataclasses.asdict(after))
    is_known = selector is not None and is_recomputable(selector)
    for index in sorted(drawn.keys() | then.keys()):
        texts = ["drawn" if index in questions else "not drawn" for questions in (drawn, then)]
        yield compare(Stage.SELECTION, "drawn questions", *texts, question=index)
        number = chosen.get(index)
        if index not in then:
            continue
        if index in added or changed[Effect.CHOICES]:
            if selector is None or not is_known:
                note = f"Choices by {after.trajectory_selection} do not follow from what is recorded."
                yield unknown(Stage.SELECTION, "chosen trajectory", note, index)
                continue
            number = rechoose(scored.get(index, []), selector)
        yield compare_ids(Stage.SELECTION, "chosen trajectory", chosen.get(index), number, index)
