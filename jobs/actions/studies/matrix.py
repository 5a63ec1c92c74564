"""From a study's cells to specifications of runs, and from tags of runs back to cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from exgrpo.jobs.actions.run_actions import STUDY_TAG
from exgrpo.jobs.actions.studies.definition import Cell, Scale, Study
from exgrpo.jobs.specs.train import TrainSpec, load_preset, merge_settings, parse_spec

SCALE_CHANGES: dict[Scale, dict[str, Any]] = {
    Scale.CHAINS: {
        "num_steps": 30,
        "optim": {"learning_rate": 2e-4},
        "validation": {"interval": 10, "num_training_questions": 0},
        "checkpoint_interval": 30,
        "num_checkpoints_kept": 1,
        "recording": {"token_data": "none"},
    },
    Scale.REAL: {},
    Scale.PAPER: {},
    Scale.OWN: {},
}
"""What all studies change at a scale. On `chains` few steps, so that a matrix ends within hours on one core, at twice
the presets' learning rate, so that the delayed start opens within the first half of them.
"""
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


def study_tag(study: Study) -> str:
    """Return the tag that all runs of a study have."""
    return f"study:{study.name}"


def key_from_tags(tags: Sequence[str]) -> RunKey | None:
    """Return which run of a study has these tags, None if none has."""
    values = {match[1]: match[2] for tag in tags if (match := STUDY_TAG.fullmatch(tag))}
    try:
        return RunKey(values["study"], Scale(values["scale"]), values["cell"], int(values["seed"]))
    except (KeyError, ValueError):
        return None


def wanted_keys(study: Study, scale: Scale, cells: Sequence[Cell], num_seeds: int | None) -> list[RunKey]:
    """Return the runs of a study, seed by seed, so that a matrix cut short has the same seeds in every cell."""
    seeds = num_seeds or (PAPER_SEEDS if scale is Scale.PAPER else study.num_seeds)
    names = [cell.name for cell in cells if cell.recipe(scale) is not None]
    numbers = study.seeds[:seeds] or range(seeds)
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
    for changes in (SCALE_CHANGES[key.scale], recipe.changes, of_seed):
        content = merge_settings(content, changes)
    return parse_spec(content, f"study {key.study}, cell {key.cell}")
