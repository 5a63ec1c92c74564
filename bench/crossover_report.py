"""The table and the picture of the study `crossover`, from the runs that are finished.

Run `python -m bench.crossover_report`; it writes `docs/studies/crossover.csv` and `crossover.svg`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from bench.crossover import RESULT_FILE, START, read_lines
from bench.crossover_picture import Point, draw
from bench.robust import Values, interquartile_mean, probability_of_improvement, stratified_interval
from db.statistics.differences import holm
from db.statistics.intervals import MeanInterval, mean_interval
from jobs.analysis.score_curves import pass_at_k

BASELINE = "on-policy"
LEAST_RUNS = 4
"""Below it a quarter at each end is no run, and draws of the same runs say nothing."""
DRAWN_REST = "k8-n64"
"""Values of the other axes of what the picture shows."""
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A method against on-policy training in one setting, in percent of held-out answers; runs are paired by seed."""

    rate: str
    rest: str
    method: str
    start: float
    """Mean Pass@1 of the warm models before training."""
    lines: tuple[Line, ...]
    base_lines: tuple[Line, ...]

    @property
    def difference(self) -> MeanInterval:
        """Pass@1 minus the baseline's: mean over seeds with Student's interval."""
        return mean_interval(self._differences())

    @property
    def robust(self) -> tuple[float, float, float]:
        """Interquartile mean of the difference, with its interval by draws within each warm model."""
        low, high = stratified_interval(self._strata(), lambda parts: interquartile_mean(np.concatenate(parts)))
        return interquartile_mean(np.array(self._differences())), low, high

    @property
    def improvement(self) -> float:
        """Probability that a run of the method scores above one of the baseline from the same warm model."""
        pairs = zip(self.lines, self.base_lines, strict=True)
        models: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for line, base in pairs:
            models[line["warm_seed"]].append((score(base, 1), score(line, 1)))
        sides = [np.array(values).T for values in models.values()]
        return probability_of_improvement([side[0] for side in sides], [side[1] for side in sides])

    def _differences(self) -> list[float]:
        return [score(line, 1) - score(base, 1) for line, base in zip(self.lines, self.base_lines, strict=True)]

    def _strata(self) -> list[Values]:
        models: dict[int, list[float]] = defaultdict(list)
        for line, value in zip(self.lines, self._differences(), strict=True):
            models[line["warm_seed"]].append(value)
        return [np.array(values) for values in models.values()]


def score(line: Line, k: int) -> float:
    """Return Pass@k of a run in percent, without bias, over its held-out questions."""
    return 100.0 * fmean(float(pass_at_k(right, line["num_samples"])[k - 1]) for right in line["num_correct"])


def compare(lines: Sequence[Line]) -> list[Comparison]:
    """Return every method in every setting that has a baseline, the highest start first; seeds of both count."""
    runs = {(line["rest"], line["rate"], line["method"], line["seed"]): line for line in lines}
    starts = {
        setting: fmean(score(line, 1) for line in lines_of(lines, *setting, START))
        for setting in dict.fromkeys((line["rest"], line["rate"]) for line in lines)
    }
    methods = [name for name in dict.fromkeys(line["method"] for line in lines) if name not in {START, BASELINE}]
    comparisons = []
    for (rest, rate), start in sorted(
        starts.items(), key=lambda item: (item[0][0] != DRAWN_REST, item[0][0], -item[1])
    ):
        for method in methods:
            seeds = [line["seed"] for line in lines_of(lines, rest, rate, method)]
            seeds = [seed for seed in seeds if (rest, rate, BASELINE, seed) in runs]
            if len(seeds) > 1:
                sides = [tuple(runs[rest, rate, name, seed] for seed in seeds) for name in (method, BASELINE)]
                comparisons.append(Comparison(rate, rest, method, start, sides[0], sides[1]))
    return comparisons


def lines_of(lines: Sequence[Line], rest: str, rate: str, method: str) -> list[Line]:
    """Return the runs of one method in one setting."""
    return [line for line in lines if (line["rest"], line["rate"], line["method"]) == (rest, rate, method)]


def setting_text(rest: str) -> str:
    """Return K and the number of questions of a cell's name, such as `8, 64`."""
    return rest.removeprefix("k").replace("-n", ", ")


def differences_table(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """Return the differences in Pass@1, in points, with what is corrected for their number."""
    corrected = holm([item.difference.p_value for item in comparisons])
    rows = []
    for item, p_value in zip(comparisons, corrected, strict=True):
        robust = item.robust if len(item.lines) >= LEAST_RUNS else (None, None, None)
        rows.append(
            {
                "k_and_questions": setting_text(item.rest),
                "start": item.start,
                "method": item.method,
                "num_runs": len(item.lines),
                "end": fmean(score(line, 1) for line in item.lines),
                "difference": item.difference.mean,
                "half_interval": item.difference.half,
                **dict(zip(("iqm", "iqm_low", "iqm_high"), robust, strict=True)),
                "probability_better": item.improvement,
                "p_holm": p_value,
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Write the table and the picture."""
    comparisons = compare(read_lines(RESULT_FILE))
    differences_table(comparisons).to_csv(RESULT_FILE.with_suffix(".csv"), index=False, float_format="%.3f")
    points: dict[str, list[Point]] = defaultdict(list)
    for item in comparisons:
        if item.rest == DRAWN_REST and len(item.lines) >= LEAST_RUNS:
            points[item.method].append(Point(item.start, item.difference.mean, item.difference.half))
    RESULT_FILE.with_suffix(".svg").write_text(draw(points), encoding="utf-8")


if __name__ == "__main__":
    main()
