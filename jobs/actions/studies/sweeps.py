"""Sweeps: studies over listed values of fields, which users write as YAML; one file each in the workbench's folder.

`base` is a preset's name, a specification's file or its fields, `over` has the values of each field (`mu` is one, too):

    base: chains-exgrpo
    over:
      optim.learning_rate: [1e-4, 2e-4]
      seed: [0, 1, 2]

All combinations are run. `seed` sets the seeds of the study, each other combination is a cell. Differences are to the
cell that is nearest to the base.
"""

import json
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field

from exgrpo.db.rows.spec_differences import differences
from exgrpo.jobs.actions.preflight.resolution import complete, resolve
from exgrpo.jobs.actions.studies.definition import (
    NAME_PATTERN,
    Cell,
    Recipe,
    Scale,
    Study,
    load_study,
    spec_of,
    study_names,
    wanted_keys,
)
from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.base import Seed, Spec, SpecError, checked
from exgrpo.jobs.specs.presets import load_plain_yaml, preset_exists, read_mapping
from exgrpo.jobs.specs.settings import apply_settings, full_path
from exgrpo.jobs.specs.train import TrainSpec, load_preset, load_spec, spec_of_fields
from exgrpo_core.bounded_json import UnreadableFileError, read_json
from exgrpo_core.durable_files import write_whole

MAX_RUNS = 200
_FOLDER = Path(WORKBENCH_FOLDER, "sweeps")
_SEED = "seed"
_OF_RUNS = ("name", "tags", "algorithm.seed")
"""Fields that each run of a study has of itself."""
_MAX_CELL_CHARACTERS, _MAX_NAME_CHARACTERS = 40, 31


class Sweep(Spec):
    """What a user writes."""

    name: str = Field(pattern=NAME_PATTERN)
    """Name of the study; the file's if not given."""
    base: str | dict[str, Any]
    over: dict[str, list[Any]] = Field(min_length=1)


def sweep_of_file(path: Path) -> Study:
    """Return the study that a file describes.

    Raises:
        SpecError: The file, a field or a value is wrong.
    """
    return make_sweep({"name": path.stem, **read_mapping(path)}, str(path), path.parent)


def sweep_of_text(text: str, name: str) -> Study:
    """Return the study that a form describes, whose base is no file.

    Raises:
        SpecError: A field or a value is wrong.
    """
    content = load_plain_yaml(text, "sweep")
    return make_sweep({"name": name, **(content if isinstance(content, dict) else {})}, "sweep", None)


def make_sweep(content: Mapping[str, Any], origin: str, folder: Path | None) -> Study:
    """Return the study of a sweep, every cell of which is a whole specification that was checked.

    Raises:
        SpecError: A field or a value is wrong, or there are too many runs.
    """
    name = content.get("name")
    plain = {"name": _plain(name)[:_MAX_NAME_CHARACTERS]} if isinstance(name, str) else {}
    sweep = checked(Sweep, {**content, **plain}, origin)
    if sweep.name in study_names():
        raise SpecError(f"{sweep.name!r} is a study of the paper; choose another.", "name")
    base = _base(sweep.base, origin, folder)
    if empty := [field for field, values in sweep.over.items() if not values]:
        raise SpecError("expected a list of values, got an empty one.", f"over.{empty[0]}")
    fields = base.model_dump(mode="json")
    over = {full_path(fields, field): values for field, values in sweep.over.items()}
    if of_runs := [field for field in _OF_RUNS if field in over]:
        raise SpecError("each run has its own; leave it out, or list values of seed.", f"over.{of_runs[0]}")
    if len(over) < len(sweep.over):
        raise SpecError("expected each field once.", "over")
    axes = {field: values for field, values in over.items() if field != _SEED}
    listed = checked(_Seeds, {"seed": over.get(_SEED, [base.seed])}, f"{origin}: over").seed
    seeds = tuple(dict.fromkeys(listed))
    combinations = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if len(combinations) * len(seeds) > MAX_RUNS:
        raise SpecError(f"expected at most {MAX_RUNS} runs, got {len(combinations) * len(seeds):,}.", "over")
    specs = [
        apply_settings(base, [f"{field}={json.dumps(value)}" for field, value in values.items()], "over")
        for values in combinations
    ]
    cells = [
        Cell(name=cell_name, own=Recipe(changes=spec.model_dump(mode="json")))
        for cell_name, spec in zip(_cell_names(combinations), specs, strict=True)
    ]
    nearest, _ = min(
        zip(cells, specs, strict=True), key=lambda each: len(differences(fields, each[1].model_dump(mode="json")))
    )
    varied = " and ".join(field for field, values in axes.items() if len(values) > 1) or _SEED
    study = Study(
        name=sweep.name, title=f"Sweep {sweep.name}", question=f"What do values of {varied} change?",
        baseline=nearest.name, num_seeds=len(seeds), seeds=seeds, cells=tuple(cells),
        notes=tuple(f"{cell.name}: {_in_words(values)}" for cell, values in zip(cells, combinations, strict=True)),
    )  # fmt: skip
    for key in wanted_keys(study, Scale.OWN, study.cells, None):
        spec_of(study, key)
    return study


class _Seeds(Spec):
    seed: list[Seed]


def _base(base: str | dict[str, Any], origin: str, folder: Path | None) -> TrainSpec:
    if isinstance(base, dict):
        return spec_of_fields(base, f"{origin}: base")
    is_file = folder is not None and base.endswith((".yaml", ".yml", ".json"))
    if folder is not None and is_file:
        return load_spec(folder / base)
    if not preset_exists(base):
        raise SpecError(
            f"expected a preset, a specification's YAML file or its fields, got {base!r}; `exgrpo query presets` lists "
            "presets.",
            "base",
        )
    return load_preset(base)


def _in_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{field}={_text(value)}" for field, value in values.items()) or "the base"


def _text(value: object) -> str:
    """Return a value as `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _cell_names(combinations: list[dict[str, Any]]) -> list[str]:
    """Return distinct names of cells: of fields and values where they are short, else of numbers.

    A field with the same value everywhere is in no name, unless there is one cell only.
    """
    is_one = len(combinations) == 1
    names = [
        "-".join(
            _plain(f"{field.rpartition('.')[2]}-{_text(value)}") for field, value in values.items()
            if is_one or any(other[field] != value for other in combinations)
        ) or "base"
        for values in combinations
    ]  # fmt: skip
    is_usable = len({*names}) == len(names) and all(len(name) <= _MAX_CELL_CHARACTERS for name in names)
    return names if is_usable else [f"cell-{number}" for number in range(1, len(names) + 1)]


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def refuse_unrunnable(runs_root: Path, study: Study) -> None:
    """Check each cell of a sweep as it would be when it is queued.

    Raises:
        CommandError: One could not run here.
        SpecError: It names a file, model or benchmark that does not exist.
    """
    for cell in study.cells:
        key = wanted_keys(study, Scale.OWN, [cell], 1)[0]
        complete(resolve(spec_of(study, key), runs_root), runs_root).raise_refusals()


def refuse_changed(runs_root: Path, study: Study) -> None:
    """Check that an earlier sweep of this name has the same base: its runs count as those of this one.

    Raises:
        SpecError: A cell of the earlier one has the same name and other settings.
    """
    if study.name not in sweep_names(runs_root):
        return
    earlier = {cell.name: cell for cell in _read(runs_root, study.name).cells}
    if changed := [cell.name for cell in study.cells if cell.name in earlier and earlier[cell.name] != cell]:
        raise SpecError(f"{study.name!r} was run with other settings of {changed[0]}; choose another.", "name")


def keep(runs_root: Path, study: Study) -> None:
    """Write a sweep into the workbench's folder, in place of an earlier one of the same base."""
    path = runs_root / _FOLDER / f"{study.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, study.model_dump_json(exclude_defaults=True))


@needs(Role.OPERATOR)
def keep_text(runs_root: Path, name: str, text: str) -> str:
    """Check a sweep that is written as YAML, keep it and return its name; its runs are launched as any study's.

    Raises:
        UserError: A field or value is wrong, a cell could not run here, or another sweep has this name.
    """
    study = sweep_of_text(text, name)
    refuse_unrunnable(runs_root, study)
    refuse_changed(runs_root, study)
    keep(runs_root, study)
    return study.name


def sweep_names(runs_root: Path) -> list[str]:
    """Return the names of all sweeps, sorted."""
    return sorted(path.stem for path in (runs_root / _FOLDER).glob("*.json"))


@needs(Role.VIEWER)
def read_sweeps(runs_root: Path) -> tuple[dict[str, Study], list[str]]:
    """Return all sweeps by name, and a sentence on each file that cannot be read."""
    sweeps: dict[str, Study] = {}
    faults: list[str] = []
    for name in sweep_names(runs_root):
        try:
            sweeps[name] = _read(runs_root, name)
        except SpecError as error:
            faults.append(str(error))
    return sweeps, faults


@needs(Role.VIEWER)
def find_study(runs_root: Path, name: str) -> Study:
    """Return a study of the paper, or a sweep of this runs root, by its name.

    Raises:
        SpecError: There is none.
    """
    return _read(runs_root, name) if name in sweep_names(runs_root) else load_study(name)


def _read(runs_root: Path, name: str) -> Study:
    path = runs_root / _FOLDER / f"{name}.json"
    try:
        return checked(Study, read_json(path), str(path))
    except (OSError, UnreadableFileError) as error:
        raise SpecError(f"{path}: cannot be read ({error}); give the sweep's file to `exgrpo sweep` again.") from None
