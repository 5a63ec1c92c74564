"""The parts of a replay method by their names, and those of a run with its objective, built once.

A name is that of a class of `exgrpo_core.strategies`, of an entry point, or `module:Class`. Code from outside the
workbench runs only where the machine's owner allows its module.
"""

import dataclasses
import difflib
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Protocol, get_args, get_type_hints

from exgrpo_core.config import GAUSSIAN, ExGRPOConfig, LossAggregation
from exgrpo_core.errors import FieldError, InputError, Mistake, shown
from exgrpo_core.methods.about import About, Part
from exgrpo_core.methods.protocols import OffPolicyCorrection, ReplayMethod, TrajectorySelector
from exgrpo_core.methods.ranges import Range

STRATEGIES = "exgrpo_core.strategies"
ENTRY_POINTS = "exgrpo.strategies"
"""Group of the entry points of other packages; an entry point's name is the part's."""
ALLOWED_CODE_VARIABLE = "EXGRPO_ALLOWED_CODE"
"""Modules, separated by commas, whose code specifications may name; the owner of the machine sets it."""
CODE_FOLDER_VARIABLE = "EXGRPO_CODE_FOLDER"
"""The folder where a command was started, for the processes that it starts in other folders."""

QUESTIONS, TRAJECTORIES = "question_selection", "trajectory_selection"
CORRECTION, FRESH = "off_policy_correction", "fresh_objective"
KINDS: dict[str, type[Any]] = {
    QUESTIONS: ReplayMethod,
    TRAJECTORIES: TrajectorySelector,
    CORRECTION: OffPolicyCorrection,
    FRESH: OffPolicyCorrection,
}
"""The protocol of each setting that names a part."""


class Settings(Protocol):
    """A configuration: its attributes are hyperparameters, some of which name a part."""

    @property
    def strategy_settings(self) -> Mapping[str, float]:
        """Settings that only parts know."""


def names_of(setting: str) -> list[str]:
    """Return the names of the built-in parts that a setting may name, in the order of their files."""
    return list(_built_in(setting))


@cache
def methods() -> dict[str, About]:
    """Return every method of the workbench, by the name of the part that makes it, with all settings; ExGRPO first."""
    named = {
        name: dataclasses.replace(about, settings={**about.settings, setting: name})
        for setting in (QUESTIONS, CORRECTION)
        for name, part in _built_in(setting).items()
        if (about := vars(part).get("about")) is not None
    }
    return dict(sorted(named.items(), key=lambda item: (item[0] != GAUSSIAN, item[1].title.lower())))


def describe(setting: str, name: str) -> str:
    """Return what a part does, as the first lines of its class say; "" where there is none."""
    try:
        part = find_part(setting, name)
    except InputError:
        return ""
    return " ".join(inspect.cleandoc(part.__doc__ or "").partition("\n\n")[0].split())


def build_part(setting: str, settings: Settings) -> Any:  # noqa: ANN401 # of the protocol that KINDS has for the setting
    """Return the part that a setting names, with its fields filled from the hyperparameters and `strategy_settings`.

    Raises:
        InputError: There is none, it is of another kind, or it is code that this machine does not allow.
        FieldError: A number is out of its range, or has neither a setting nor a default.
    """
    part = find_part(setting, getattr(settings, setting))
    values: dict[str, Any] = {}
    mistakes = []
    for name, (expected, default) in part_numbers(part).items():
        is_shared = hasattr(settings, name)
        given = getattr(settings, name) if is_shared else settings.strategy_settings.get(name, default)
        path = name if is_shared else f"strategy_settings.{name}"
        if given is dataclasses.MISSING:
            mistakes.append(Mistake(f"expected {expected or Range()}, which {getattr(settings, setting)} needs.", path))
        elif given is not default and (expected or not is_shared) and given not in (expected or Range()):
            mistakes.append(Mistake(f"expected {expected or Range()}, got {shown(given)}.", path))
        values[name] = given
    for name, least in values.items() if not mistakes else ():
        most = f"most_{name.removeprefix('least_')}"
        if name.startswith("least_") and values.get(most, least) < least:
            text = f"expected at least {name}, which is {least:g}, got {values[most]:g}."
            mistakes.append(Mistake(text, f"strategy_settings.{most}"))
    if mistakes:
        raise FieldError("\n".join(mistakes), mistakes=mistakes)
    return part(**values)


def part_numbers(part: type[Any]) -> dict[str, tuple[Range | None, Any]]:
    """Return the settings of a part by name: the range that its annotation gives, if any, and the default."""
    try:
        hints = get_type_hints(part, include_extras=True)
    except (NameError, AttributeError) as error:
        raise InputError(f"{part.__name__}: an annotation cannot be read ({error}); import what it names.") from error
    ranges = {name: [one for one in get_args(hint) if isinstance(one, Range)] for name, hint in hints.items()}
    return {field.name: (next(iter(ranges[field.name]), None), field.default) for field in _fields(part)}


def find_part(setting: str, name: str) -> type[Any]:
    """Return the class of a part by the setting that names it.

    Raises:
        InputError: There is none, it is of another kind, or it is code that this machine does not allow.
    """
    built_in, kind = _built_in(setting), KINDS[setting]
    if name in built_in:
        return built_in[name]
    part = load_code(allowed_location(name, built_in, ENTRY_POINTS))
    if not (inspect.isclass(part) and issubclass(part, kind)) or inspect.isabstract(part) or not _has_name(part):
        raise InputError(f"expected a {kind.__name__} with a name and all of its methods, which {name} is not.")
    _check_needs(part)
    return part


def _check_needs(part: type[Any]) -> None:
    needs: object = part.needs
    if not isinstance(needs, dict) or not all(
        isinstance(setting, str) and isinstance(need, tuple) and len(need) == 2 and isinstance(need[1], str)
        for setting, need in needs.items()
    ):
        raise InputError(
            f"{part.__name__}.needs: expected a dict of setting: (value, reason), such as "
            f"{{'refresh': ('never', 'replays groups of one step')}}, got {shown(needs)}."
        )


def _has_name(part: type[Any]) -> bool:
    return isinstance(getattr(part, "name", None), str)


def fields_of(setting: str, settings: Settings) -> set[str]:
    """Return the settings that the part reads which `setting` names.

    Raises:
        InputError: There is none, it is of another kind, or it is code that this machine does not allow.
    """
    return set(part_numbers(find_part(setting, getattr(settings, setting))))


def find_mistakes(settings: Settings) -> Iterator[Mistake]:
    """Yield a sentence for each part that cannot be built, and for each setting that no chosen part has."""
    known, parts, unbuilt = set[str](), list[tuple[str, Part]](), list[Mistake]()
    for setting in KINDS:
        try:
            known |= {name for name in fields_of(setting, settings) if not hasattr(settings, name)}
            parts.append((getattr(settings, setting), build_part(setting, settings)))
        except FieldError as error:
            unbuilt += error.mistakes
        except (InputError, ValueError) as error:
            yield Mistake(str(error), setting)
            return
    yield from dict.fromkeys(unbuilt)
    for part_name, part in parts:
        for name, (value, reason) in part.needs.items():
            if getattr(settings, name, value) != value:
                shown_value = "null" if value is None else value
                yield Mistake(f"expected {shown_value}, since {part_name} {reason}.", name)
        yield from part.find_mistakes(settings)
    for name in settings.strategy_settings.keys() - known:
        choice = f"expected one of {', '.join(sorted(known))}" if known else "remove it"
        undecorated = (vars(type(part)) for _, part in parts if "__dataclass_fields__" not in vars(type(part)))
        if any(name in content.get("__annotations__", ()) for content in undecorated):
            choice = "write @dataclass(frozen=True, slots=True) above the class that has it"
        yield Mistake(f"the chosen strategies have no setting {name}; {choice}.", "strategy_settings")


def allowed_location(name: str, built_in: Mapping[str, object], group: str) -> str:
    """Return `module:Class` of a name that is not built in: itself, or an entry point of the group.

    Raises:
        InputError: There is none, or it is code that this machine does not allow.
    """
    location = _location(name, group)
    module, separator, _ = location.partition(":")
    if not separator:
        nearest = difflib.get_close_matches(name, built_in, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"expected one of {', '.join(built_in)}, or module:Class."
        raise InputError(f"there is no {name!r}; {hint}")
    if not _is_allowed(module, os.environ.get(ALLOWED_CODE_VARIABLE, "")):
        raise InputError(
            f"{name} is code from outside the workbench, which this machine does not run; its owner allows it with "
            f"{ALLOWED_CODE_VARIABLE}={module.partition('.')[0]}."
        )
    return location


def module_elsewhere(name: str, group: str, allowed: str, folder: str) -> str:
    """Return the module of a name whose code this process can load, and one started with these variables cannot.

    `allowed` and `folder` are the other's `ALLOWED_CODE_VARIABLE` and `CODE_FOLDER_VARIABLE`. "" if it can, or if the
    name is no code from outside.
    """
    module, separator, _ = _location(name, group).partition(":")
    package = module.partition(".")[0]
    is_known = separator and _is_allowed(module, allowed)
    is_found = is_known and (PathFinder.find_spec(package) or PathFinder.find_spec(package, [folder]))
    return package if separator and not is_found else ""


def _location(name: str, group: str) -> str:
    return next((entry.value for entry in entry_points(group=group, name=name)), name)


def _is_allowed(module: str, allowed: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in _words(allowed))


def load_code(location: str) -> Any:  # noqa: ANN401 # whatever the module holds
    """Return what `module:Class` names.

    Raises:
        InputError: It cannot be imported, or fails while it is.
    """
    module, _, name = location.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{location} cannot be imported ({error}); correct the name, start the workbench in the folder of the "
            "module, or install it where the workbench runs."
        ) from error
    except Exception as error:  # what code of others raises
        raise InputError(
            f"{location} cannot be imported ({type(error).__name__}: {error}); correct its file."
        ) from error


class _CodeFolder(MetaPathFinder):
    """Finds modules that are not installed in the folder where the workbench was started: allowed ones, no others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return the file of an allowed module; None for any other."""
        allowed = _words(os.environ.get(ALLOWED_CODE_VARIABLE, ""))
        if path is not None or name not in {module.partition(".")[0] for module in allowed}:
            return None
        return PathFinder.find_spec(name, [os.environ.get(CODE_FOLDER_VARIABLE, "")], target)


# Other processes load parts too, by unpickling objects of this file.
sys.meta_path.append(_CodeFolder())


def _words(allowed: str) -> list[str]:
    return [word.strip() for word in allowed.split(",") if word.strip()]


def _fields(part: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()


@cache
def _built_in(setting: str) -> dict[str, type[Any]]:
    parts: dict[str, type[Any]] = {}
    kind = KINDS[setting]
    for module in pkgutil.iter_modules(import_module(STRATEGIES).__path__, f"{STRATEGIES}."):
        for _, part in inspect.getmembers(import_module(module.name), inspect.isclass):
            if part.__module__ == module.name and issubclass(part, kind) and not inspect.isabstract(part):
                parts[vars(part)["name"]] = part
    return parts


@dataclass(frozen=True, slots=True)
class ObjectiveSettings:
    """What the loss needs of a configuration; `clips_fresh` follows the delayed start.

    `correction` weighs replayed tokens, `fresh_objective` fresh ones where `clips_fresh`.
    """

    clips_fresh: bool
    clip_epsilon: float
    clip_epsilon_high: float | None
    aggregation: LossAggregation
    max_response_tokens: int
    policy_loss_factor: float
    entropy_coefficient: float
    kl_coefficient: float
    correction: OffPolicyCorrection
    fresh_objective: OffPolicyCorrection


@dataclass(frozen=True, slots=True)
class RunStrategies:
    """What plans steps and chooses trajectories, and the objective before and after the delayed start opens."""

    method: ReplayMethod
    trajectory_selector: TrajectorySelector
    objective_before_start: ObjectiveSettings
    objective: ObjectiveSettings


def build_strategies(config: ExGRPOConfig) -> RunStrategies:
    """Return the strategies that a configuration names.

    Raises:
        InputError: One cannot be built; see `build_part`.
    """
    return RunStrategies(
        build_part(QUESTIONS, config),
        build_part(TRAJECTORIES, config),
        build_objective(config, is_replay_open=False),
        build_objective(config, is_replay_open=True),
    )


def build_objective(config: ExGRPOConfig, is_replay_open: bool) -> ObjectiveSettings:
    """Return the objective of steps before or after the delayed start opened."""
    return ObjectiveSettings(
        clips_fresh=config.clips_fresh(is_replay_open),
        clip_epsilon=config.clip_epsilon,
        clip_epsilon_high=config.clip_epsilon_high,
        aggregation=config.loss_aggregation,
        max_response_tokens=config.max_response_tokens,
        policy_loss_factor=config.policy_loss_factor,
        entropy_coefficient=config.entropy_coefficient,
        kl_coefficient=config.kl_coefficient,
        correction=build_part(CORRECTION, config),
        fresh_objective=build_part(FRESH, config),
    )
