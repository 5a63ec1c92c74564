"""What a study is: cells to run at each scale, their specifications, and the tables that the paper prints of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, reduce
from itertools import product
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from exgrpo.jobs.actions.run_actions import STUDY_TAG
from exgrpo.jobs.specs.base import Positive, Spec, SpecError, checked
from exgrpo.jobs.specs.presets import merge_settings
from exgrpo.jobs.specs.train import TrainSpec, load_preset, parse_spec
from exgrpo_core.methods.loading import methods

STUDIES_DIR = Path(__file__).parent
NAME_PATTERN = r"^[a-z0-9][a-z0-9.-]{0,30}$"
CELL_PATTERN = r"^[a-z0-9][a-z0-9.-]{0,39}$"
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")

PrintedValue = float | str
"""A cell as the paper prints it: a bare number, or text such as `+20.9%`, `1.77GB` or `--`."""


class Scale(StrEnum):
    """Where a study runs."""

    CHAINS = "chains"
    REAL = "real"
    PAPER = "paper"
    OWN = "own"
    """A sweep of a user's, whose cells are whole specifications."""

    @property
    def words(self) -> str:
        """What runs there, and with what."""
        return _SCALES[self]


_SCALES = {
    Scale.CHAINS: "The built-in task chains with the embedded engine, on one core: a toy, whose scores are not those "
    "of the paper's benchmarks and say nothing about real models",
    Scale.REAL: "A small pretrained language model on English word problems with the embedded engine, on two cores",
    Scale.PAPER: "The paper's models and data with the verl engine, on GPUs",
    Scale.OWN: "All combinations of listed values of fields",
}


class Recipe(Spec):
    """How a cell's specification is made: a preset, none in a sweep, and what differs from it."""

    preset: str | None = None
    changes: dict[str, Any] = Field(default_factory=dict)


class Cell(Spec):
    """One setting of a study, run with several seeds. A scale without a recipe has no such setting."""

    name: str = Field(pattern=CELL_PATTERN)
    chains: Recipe | None = None
    real: Recipe | None = None
    paper: Recipe | None = None
    own: Recipe | None = None
    baseline: str | None = None
    """The cell to compare with, where it is not the study's; a cell that names itself is compared with none."""
    starts_from: str | None = None
    """The cell whose run of the same seed is trained before; its last checkpoint is the model to start from."""

    def recipe(self, scale: Scale) -> Recipe | None:
        """Return how the cell is run at a scale, None where it cannot be."""
        of_scales = {Scale.CHAINS: self.chains, Scale.REAL: self.real, Scale.PAPER: self.paper, Scale.OWN: self.own}
        return of_scales[scale]


class Grid(Spec):
    """Cells as the product of methods and of axes, for studies with hundreds of them."""

    preset_changes: dict[str, Any]
    """What every cell changes."""
    methods: dict[str, Recipe]
    axes: tuple[dict[str, dict[str, Any]], ...]
    """For each axis, its values by name, and what each changes."""
    baseline: str
    """The method that others are compared with, at equal values of all axes."""
    preset_of_methods: str | None = None
    """The preset that every replay method of the workbench changes; with it, all of them are methods of the grid."""

    @property
    def _recipes(self) -> dict[str, Recipe]:
        if self.preset_of_methods is None:
            return self.methods
        changes = {about.cell: {"algorithm": about.settings} for about in methods().values()}
        made = {name: Recipe(preset=self.preset_of_methods, changes=changed) for name, changed in changes.items()}
        return self.methods | made

    def cells(self) -> list[Cell]:
        """Return one cell for each method and combination of values, named by all of them."""
        made = []
        for values in product(*(axis.items() for axis in self.axes)):
            changes = reduce(merge_settings, (value for _, value in values), self.preset_changes)
            end = "".join(f"-{name}" for name, _ in values)
            for method, recipe in self._recipes.items():
                merged = Recipe(preset=recipe.preset, changes=merge_settings(changes, recipe.changes))
                made.append(Cell(name=method + end, chains=merged, baseline=self.baseline + end))
        return made


class PaperRow(Spec):
    """One row of a table of the paper, and the cells that represent it here."""

    row: str
    values: tuple[PrintedValue, ...]
    group: str = ""
    """The heading above the row, where the table has such."""
    cells: tuple[str, ...] = ()
    model: str = ""
    """Hub name of the row's model: an untrained one, another group's, or the checkpoint that the authors released."""
    template: str = "paper"
    """Prompt template by which that model is scored."""


class PaperTable(Spec):
    """One table of the paper, or those rows of it that belong to a study."""

    name: str
    marker_text: str | None = None
    """Text of the table's environment by which it is found, where the paper gives it no label of this name."""
    columns: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    averages: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """For each column of averages, the columns it is the mean of."""
    figures: dict[str, str] = Field(default_factory=dict)
    """For columns, the figure of a run here that is the same, `{row}` being the row's name in lower case.

    Without any, the first figure of a run is set next to the first average.
    """

    def number(self, row: PaperRow, column: str) -> float:
        """Return the number that a row has in a column.

        Raises:
            LookupError: The paper prints none there.
        """
        value = number_of(row.values[self.columns.index(column)])
        if value is None:
            raise LookupError(f"{self.name}, {row.row}, {column}: expected a number.")
        return value

    @model_validator(mode="after")
    def _check_width(self) -> "PaperTable":
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"rows: expected {len(self.columns)} values in {row.row!r}, got {len(row.values)}.")
        named = {*self.figures, *self.averages, *(part for parts in self.averages.values() for part in parts)}
        if named - {*self.columns}:
            raise ValueError(f"columns: expected {min(named - {*self.columns})!r}, which averages or figures name.")
        return self


class Reference(Spec):
    """A cell of a table of the paper, named by study, table, group, row and column."""

    study: str
    table: str
    row: str
    column: str
    group: str = ""


class Claim(Spec):
    """A number in the paper's running text, with the words around it."""

    row: str
    column: str
    value: PrintedValue
    quote: str
    """The words, as in the paper's source."""
    same_as: Reference | None = None
    """The cell of a table that holds the same number."""


class Gain(Spec):
    """One setting whose gain, a method minus a baseline, counts in a mean over settings."""

    setting: str
    study: str
    table: str
    group: str = ""
    method: str = "ExGRPO"
    baseline: str = "On-Policy"
    cells: tuple[str, str]
    """The cells of method and baseline."""


class Study(Spec):
    """One study: what it asks, what is run for it, and every number that the paper prints of it."""

    name: str
    title: str
    question: str
    measure: Literal["held_out", "step_seconds", "mini_batches", "code", "validity", "methods"] = "held_out"
    """What is read from a finished run; at the paper's scale `held_out` gives way to benchmark scores."""
    baseline: str | None = None
    """The cell that others are compared with, seed by seed."""
    num_seeds: Positive = 8
    """Seeds of each cell, but at the paper's scale: one."""
    seeds: tuple[int, ...] = ()
    """The seeds of a sweep; of a study of the paper they count from 0."""
    num_warm_models: Positive = 3
    """Warm models on `chains`, which intervals over seeds then cover: seed s starts from number s modulo this."""
    cells: tuple[Cell, ...]
    tables: tuple[PaperTable, ...] = ()
    claims: tuple[Claim, ...] = ()
    gains: tuple[Gain, ...] = ()
    gain_columns: dict[str, str] = Field(default_factory=dict)
    """For each column of the claims on gains, the column of the tables that it is about."""
    notes: tuple[str, ...] = ()
    """What a reader must know to compare, such as what is not run here and why."""

    @model_validator(mode="after")
    def _check_cells(self) -> "Study":
        names = [cell.name for cell in self.cells]
        named = {name for table in self.tables for row in table.rows for name in row.cells}
        named |= {name for gain in self.gains for name in gain.cells}
        of_cells = (name for cell in self.cells for name in (cell.baseline, cell.starts_from))
        named |= {name for name in (self.baseline, *of_cells) if name is not None}
        unknown = sorted(named - {*names})
        if unknown:
            raise ValueError(f"cells: expected one named {unknown[0]!r}, since a row or the baseline names it.")
        if len({*names}) < len(names):
            raise ValueError("cells: expected each name once.")
        return self

    def cell(self, name: str) -> Cell:
        """Return a cell by its name.

        Raises:
            SpecError: There is none; the message lists those there are.
        """
        for cell in self.cells:
            if cell.name == name:
                return cell
        raise SpecError(f"expected some of {', '.join(cell.name for cell in self.cells)}, got {name!r}.", "--cells")

    def baseline_of(self, cell: Cell) -> str | None:
        """Return the name of the cell that a cell is compared with, None for a baseline itself."""
        name = cell.baseline or self.baseline
        return None if name == cell.name else name

    @property
    def scales(self) -> list[Scale]:
        """The scales at which any cell can be run."""
        return [scale for scale in Scale if self.cells_at(scale)]

    def cells_at(self, scale: Scale) -> list[Cell]:
        """Return the cells that can be run at a scale."""
        return [cell for cell in self.cells if cell.recipe(scale) is not None]


def number_of(value: PrintedValue) -> float | None:
    """Return the number in a printed cell, signed and without its unit, None where there is none."""
    if isinstance(value, float):
        return value
    match = _NUMBER.search(value)
    return float(match.group().replace(",", "")) if match else None


def study_names() -> list[str]:
    """Return the names of all studies, sorted."""
    return sorted(path.stem for path in STUDIES_DIR.glob("*.yaml"))


@cache
def load_study(name: str) -> Study:
    """Return a study by its name.

    Raises:
        SpecError: No such study, or its file holds a wrong field.
    """
    if name not in study_names():
        raise SpecError(f"expected one of {', '.join(study_names())}, got {name!r}.", "NAME")
    content = yaml.safe_load((STUDIES_DIR / f"{name}.yaml").read_text(encoding="utf-8"))
    grid = content.pop("grid", None)
    if grid is not None:
        content["cells"] = checked(Grid, grid, f"study {name}").cells()
    return checked(Study, {"name": name, **content}, f"study {name}")


CHANGES_ON_CHAINS: dict[str, Any] = {
    "num_steps": 30,
    "optim": {"learning_rate": 2e-4},
    "validation": {"interval": 10, "num_training_questions": 0},
    "checkpoint_interval": 30,
    "num_checkpoints_kept": 1,
    "recording": {"token_data": "none"},
}
"""What all studies change on `chains`: few steps, so that a matrix ends within hours on one core, at twice the presets'
learning rate, so that the delayed start opens within the first half of them."""
PAPER_SEEDS = 1
"""Seeds of each cell at the paper's scale unless more are asked for: the paper reports one run a row."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """Identifies a run of a study."""

    study: str
    scale: Scale
    cell: str
    seed: int

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that say so in the run's specification."""
        return (f"study:{self.study}", f"scale:{self.scale}", f"cell:{self.cell}", f"seed:{self.seed}")


def key_from_tags(tags: Sequence[str]) -> RunKey | None:
    """Return which run of a study has these tags, None if none has."""
    values = {match[1]: match[2] for tag in tags if (match := STUDY_TAG.fullmatch(tag))}
    try:
        return RunKey(values["study"], Scale(values["scale"]), values["cell"], int(values["seed"]))
    except (KeyError, ValueError):
        return None


def wanted_keys(study: Study, scale: Scale, cells: Sequence[Cell], num_seeds: int | None) -> list[RunKey]:
    """Return the runs of a study, seed by seed, so that a matrix cut short has the same seeds in every cell.

    Beyond the seeds that a sweep lists come those that it does not, from 0.
    """
    seeds = num_seeds or (PAPER_SEEDS if scale is Scale.PAPER else study.num_seeds)
    names = [cell.name for cell in cells if cell.recipe(scale) is not None]
    numbers = [*dict.fromkeys((*study.seeds, *range(seeds)))][:seeds]
    return [RunKey(study.name, scale, name, seed) for seed in numbers for name in names]


def spec_of(study: Study, key: RunKey) -> TrainSpec:
    """Return the specification of one run: the cell's preset, the changes of scale and cell, and the seed.

    Raises:
        SpecError: The cell does not exist, or its settings contradict each other.
        LookupError: The cell cannot be run at this scale.
    """
    cell = study.cell(key.cell)
    recipe = cell.recipe(key.scale)
    if recipe is None:
        raise LookupError(f"{key.cell}: cannot be run at the scale {key.scale}.")
    base = TrainSpec() if recipe.preset is None else load_preset(recipe.preset)
    content = base.model_dump(mode="json")
    of_seed: dict[str, Any] = {
        "name": f"{key.study} {key.cell} seed {key.seed}",
        "seed": key.seed,
        "algorithm": {"seed": key.seed},
        "tags": list(key.tags),
    }
    if key.scale is Scale.CHAINS and cell.starts_from is None:
        of_seed["model"] = {"warm_seed": key.seed % study.num_warm_models}
    for changes in (CHANGES_ON_CHAINS if key.scale is Scale.CHAINS else {}, recipe.changes, of_seed):
        content = merge_settings(content, changes)
    return parse_spec(content, f"study {key.study}, cell {key.cell}")
