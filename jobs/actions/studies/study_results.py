"""What has come out of a study so far: runs by their tags, figures over seeds; and how many seeds a study needs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import fmean
from typing import Any

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.runs import list_runs, run_spec
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.statistics import CONFIDENCE, MeanInterval, mean_interval, t_quantile
from exgrpo.jobs.actions.studies.definition import Cell, RunKey, Scale, Study, key_from_tags
from exgrpo.jobs.actions.studies.measures import HELD_OUT, Figures, MeasuredRun, held_out_rows, is_score, measure_run
from exgrpo_core.recording.run_status import RunStatus


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One finished run of a cell."""

    seed: int
    run: RunRow
    spec: dict[str, Any]
    figures: Figures
    curve: dict[int, float]
    """Held-out Avg@n in percent by step."""
    interval: tuple[float, float]
    """Ends of the 95% interval of its last held-out score over questions, in percent; NaN of none."""


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell's finished runs, seed by seed."""

    cell: Cell
    seeds: tuple[SeedResult, ...]

    @property
    def figures(self) -> dict[str, MeanInterval]:
        """Each figure over the seeds that have it."""
        names = dict.fromkeys(name for seed in self.seeds for name in seed.figures)
        means = {
            name: mean_interval([item.figures[name] for item in self.seeds if name in item.figures]) for name in names
        }
        return {name: mean._replace(bounds=(0.0, 100.0)) if is_score(name) else mean for name, mean in means.items()}

    def ends(self, name: str) -> tuple[float, float]:
        """Return the 95% interval of a figure over seeds; of a single seed's held-out score that over questions."""
        if name.startswith(HELD_OUT) and len(self.seeds) == 1:
            return self.seeds[0].interval
        return self.figures[name].ends()

    @property
    def curve(self) -> dict[int, MeanInterval]:
        """The held-out curve over the seeds that were scored at a step."""
        steps = sorted({step for seed in self.seeds for step in seed.curve})
        return {step: mean_interval([item.curve[step] for item in self.seeds if step in item.curve]) for step in steps}


@dataclass(frozen=True, slots=True)
class StudyResults:
    """A study at one scale: finished cells, and the state of every run that is not finished or not there."""

    study: Study
    scale: Scale
    cells: tuple[CellResult, ...]
    unfinished: tuple[tuple[RunKey, str], ...]
    """Wanted runs without a result, with their state: `missing` where none was started."""

    @property
    def main_figure(self) -> str | None:
        """The figure that represents a run: the first, None while no run has ended."""
        return next((name for result in self.cells for name in result.figures), None)

    def result_of(self, cell_name: str | None) -> CellResult | None:
        """Return a cell's runs, None if the cell cannot be run at this scale."""
        return next((cell for cell in self.cells if cell.cell.name == cell_name), None)

    @property
    def common_baseline(self) -> CellResult | None:
        """The cell that all cells with the main figure are compared with, if there is one and it has it too."""
        done = [result for result in self.cells if self.main_figure in result.figures]
        names = {self.study.baseline_of(result.cell) or result.cell.name for result in done}
        return next((result for result in done if self.study.baseline and names == {result.cell.name}), None)

    def difference(self, result: CellResult) -> MeanInterval | None:
        """Return a cell's main figure minus the baseline's, paired by seed, None without a common seed."""
        baseline, name = self.result_of(self.study.baseline_of(result.cell)), self.main_figure
        if baseline is None or name is None:
            return None
        return self.paired(result, baseline, name)

    def paired(self, result: CellResult, baseline: CellResult, name: str) -> MeanInterval | None:
        """Return one cell's figure minus another's, paired by seed, None without a common seed."""
        baselines = {seed.seed: seed.figures[name] for seed in baseline.seeds if name in seed.figures}
        pairs = [
            item.figures[name] - baselines[item.seed]
            for item in result.seeds
            if item.seed in baselines and name in item.figures
        ]
        return mean_interval(pairs) if pairs else None


def key_of(row: RunRow) -> RunKey | None:
    """Return which run of a study this is; None of a run of no study, of other jobs, and of unreadable settings."""
    return key_from_tags(row.tags) if row.kind == "train" and row.has_settings else None


def find_runs(database: Database, study: Study) -> dict[RunKey, RunRow]:
    """Return the newest run of each scale, cell and seed of a study; archived runs do not count."""
    newest: dict[RunKey, RunRow] = {}
    for row in list_runs(database, RunFilter(words=f'tag="study:{study.name}"'), limit=None):
        key = key_of(row)
        if key is not None and key.study == study.name:
            newest.setdefault(key, row)
    return newest


def state_of_keys(runs: Mapping[RunKey, RunRow], keys: Sequence[RunKey]) -> list[tuple[RunKey, str]]:
    """Return the state of each wanted run, `missing` where there is none."""
    return [(key, runs[key].status if key in runs else "missing") for key in keys]


def read_results(database: Database, study: Study, scale: Scale, wanted: Sequence[RunKey]) -> StudyResults:
    """Return everything that a study's finished runs show at a scale, also of seeds beyond those wanted."""
    runs = {key: row for key, row in find_runs(database, study).items() if key.scale is scale}
    finished = sorted((key.seed, key.cell, row) for key, row in runs.items() if row.status == RunStatus.FINISHED)
    cells = []
    for cell in study.cells_at(scale):
        seeds = [_read_seed(database, study, scale, row, seed) for seed, name, row in finished if name == cell.name]
        cells.append(CellResult(cell, tuple(seeds)))
    states = state_of_keys(runs, wanted)
    return StudyResults(
        study, scale, tuple(cells), tuple((key, state) for key, state in states if state != RunStatus.FINISHED)
    )


def _read_seed(database: Database, study: Study, scale: Scale, row: RunRow, seed: int) -> SeedResult:
    run = MeasuredRun(row.run_id, run_spec(database, row.run_id))
    figures = measure_run(database, study, scale, run)
    rows = held_out_rows(database, row.run_id)
    low, high = rows[-1].interval if rows else (math.nan, math.nan)
    curve = {item.step: 100.0 * item.avg_at_n for item in rows}
    return SeedResult(seed, row, run.spec, figures, curve, (100.0 * low, 100.0 * high))


POWER = 0.8
"""Chance of finding a difference that is there."""
MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """Seeds of each cell for a difference, in the unit of the study's figure."""

    difference: float
    spread: float
    """Standard deviation over seeds of a difference to the baseline, paired by seed."""
    num_comparisons: int
    num_seeds: int | None
    """None where more than a thousand are needed."""


def plan_seeds(difference: float, spread: float, num_comparisons: int, power: float = POWER) -> SeedPlan:
    """Return how many seeds find a difference by a paired t test at 5%, divided by the number of comparisons.

    The division is Holm's first step: what passes it passes his correction. n = ((t_level + t_power) spread /
    difference)^2 with quantiles of n - 1 degrees of freedom, which is at most one seed off the exact number.
    """
    wanted = (n for n in count(2) if n > MOST_SEEDS or detectable(n, spread, num_comparisons, power) <= abs(difference))
    num_seeds = next(wanted)
    return SeedPlan(difference, spread, num_comparisons, None if num_seeds > MOST_SEEDS else num_seeds)


def detectable(num_seeds: int, spread: float, num_comparisons: int, power: float = POWER) -> float:
    """Return the smallest difference that so many seeds find with this chance."""
    level = (1.0 - CONFIDENCE) / num_comparisons
    quantiles = t_quantile(num_seeds - 1, 1.0 - level) + t_quantile(num_seeds - 1, 2.0 * power - 1.0)
    return quantiles * spread / math.sqrt(num_seeds)


def measured_spread(results: StudyResults) -> float | None:
    """Return the standard deviation of differences within cells that have run, None without two seeds of any."""
    pairs = [results.difference(result) for result in results.cells]
    squares = [
        sum((value - pair.mean) ** 2 for value in pair.values) / (len(pair.values) - 1)
        for pair in pairs
        if pair is not None and len(pair.values) > 1
    ]
    return math.sqrt(fmean(squares)) if squares else None
