"""The table and the picture of the study `crossover`, from the runs that are finished.

Run `python -m bench.crossover_report`; it writes `docs/studies/crossover.csv` and `crossover.svg`.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bench.crossover import RESULT_FILE, START, read_lines
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


COLOURS = ("#2a6fb0", "#c05a1c", "#3b8a4b", "#8a4b9c", "#6b6b6b", "#a08000", "#b03060")
WIDTH, HEIGHT, LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 760, 380, 70, 30, 520, 290
SHIFT = 7
"""Pixels between the points of two methods at one rate."""


class Point(NamedTuple):
    """A difference at a starting rate, in percent, and half of its interval."""

    start: float
    mean: float
    half: float


def draw(methods: Mapping[str, Sequence[Point]]) -> str:
    """Return an SVG with a line a method; 0 is on-policy training."""
    points = [point for item in methods.values() for point in item]
    low_x, high_x = (math.log10(bound(point.start for point in points)) for bound in (min, max))
    low_y = min(0.0, *(point.mean - point.half for point in points))
    high_y = max(0.0, *(point.mean + point.half for point in points))

    def x_of(start: float, number: int = 0) -> float:
        share = (math.log10(start) - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        return LEFT + 30 + (PLOT_WIDTH - 60) * share + SHIFT * (number - (len(methods) - 1) / 2)

    def y_of(value: float) -> float:
        return TOP + PLOT_HEIGHT * (high_y - value) / (high_y - low_y or 1.0)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18">Held-out Pass@1 minus that of on-policy training, points</text>',
        f'<text x="{LEFT + PLOT_WIDTH / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">Pass@1 at the start, %</text>',
    ]
    step = max(1, round((high_y - low_y) / 6))
    for value in range(math.ceil(low_y), math.floor(high_y) + 1):
        if value % step == 0:
            stroke = "#888888" if value == 0 else "#dddddd"
            lines.append(f'<path d="M{LEFT} {y_of(value):.1f}h{PLOT_WIDTH}" stroke="{stroke}"/>')
            lines.append(f'<text x="{LEFT - 8}" y="{y_of(value) + 4:.1f}" text-anchor="end">{value:+d}</text>')
    for start in sorted({round(point.start, 1) for point in points}):
        lines.append(
            f'<text x="{x_of(start, 0) + SHIFT * (len(methods) - 1) / 2:.0f}" y="{TOP + PLOT_HEIGHT + 20}" '
            f'text-anchor="middle">{start:g}</text>'
        )
    for number, (name, curve) in enumerate(methods.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [(x_of(point.start, number), point) for point in curve]
        path = "L".join(f"{x:.1f} {y_of(point.mean):.1f}" for x, point in placed)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-opacity="0.4" stroke-width="2"/>')
        for x, point in placed:
            top, bottom = y_of(point.mean + point.half), y_of(point.mean - point.half)
            lines.append(f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}" stroke-width="2"/>')
            lines.append(f'<circle cx="{x:.1f}" cy="{y_of(point.mean):.1f}" r="4" fill="{colour}"/>')
        lines.append(f'<text x="{LEFT + PLOT_WIDTH + 16}" y="{TOP + 20 * number + 12}" fill="{colour}">{name}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


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
