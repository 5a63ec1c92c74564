"""The tables of `docs/snowball.md`, from `docs/studies/snowball.jsonl`: run `python -m bench.snowball_report`.

All intervals are Student's t over seeds, which start from three warm models; differences between methods are paired by
seed.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.crossover import read_lines
from bench.snowball import METHODS, NUM_SAMPLES, NUM_STEPS, RESULT_FILE
from db.statistics.differences import holm
from db.statistics.intervals import CONFIDENCE, DASH, MeanInterval, interval_text, mean_interval

PAGE = RESULT_FILE.parents[1] / "snowball.md"
MARK = "<!-- tables -->"
WINDOW = 20
HIGHEST, LOWEST, ON_POLICY = METHODS
CODE, INVALID = 1, 2
"""Positions of a property in a tally."""
Line = dict[str, Any]
Figure = Callable[[Line], float]


def share(line: Line, part: str, window: int, position: int) -> float:
    """Return the share in percent of a part's trajectories with a property over 20 steps, the last of window -1."""
    tallies = line["tallies"][part]
    chosen = tallies[-WINDOW:] if window < 0 else tallies[window * WINDOW : (window + 1) * WINDOW]
    number = sum(tally[0] for tally in chosen)
    return 100.0 * sum(tally[position] for tally in chosen) / number if number else float("nan")


def over_seeds(values: Iterable[float]) -> MeanInterval:
    """Return the mean over the runs that have such trajectories, and its interval."""
    return mean_interval([value for value in values if not math.isnan(value)])


def held_out(line: Line) -> float:
    """Return Avg@8 at the end in percent."""
    return 100.0 * sum(line["num_correct"]) / (NUM_SAMPLES * len(line["num_correct"]))


def differences(runs: Mapping[str, Mapping[int, Line]]) -> dict[str, MeanInterval]:
    """Return the differences that the page speaks of, in points."""

    def grown(method: str) -> MeanInterval:
        return over_seeds(
            share(line, "replays", -1, CODE) - share(line, "replays", 0, CODE) for line in runs[method].values()
        )

    def between(first: str, second: str, figure: Figure) -> MeanInterval:
        seeds = sorted(runs[first].keys() & runs[second].keys())
        return over_seeds(figure(runs[first][seed]) - figure(runs[second][seed]) for seed in seeds)

    def code_of(part: str, window: int) -> Figure:
        return lambda line: share(line, part, window, CODE)

    return {
        f"code in replays, {HIGHEST}: last 20 steps minus first": grown(HIGHEST),
        f"code in replays, {LOWEST}: last 20 steps minus first": grown(LOWEST),
        f"code in rollouts of steps 41 to 60: {LOWEST} minus {ON_POLICY}": between(
            LOWEST, ON_POLICY, code_of("rollouts", 2)
        ),
        f"code in rollouts of steps 41 to 60: {HIGHEST} minus {ON_POLICY}": between(
            HIGHEST, ON_POLICY, code_of("rollouts", 2)
        ),
        f"code in the buffer, last 20 steps: {LOWEST} minus {HIGHEST}": between(LOWEST, HIGHEST, code_of("buffer", -1)),
        f"held-out Avg@8: {HIGHEST} minus {ON_POLICY}": between(HIGHEST, ON_POLICY, held_out),
        f"held-out Avg@8: {LOWEST} minus {ON_POLICY}": between(LOWEST, ON_POLICY, held_out),
    }


def differences_table(intervals: Mapping[str, MeanInterval]) -> str:
    """Return the differences, a star at those that Holm's correction for all of them leaves at 5%; none of one seed."""
    has_seeds = all(len(interval.values) > 1 for interval in intervals.values())
    corrected = holm([interval.p_value for interval in intervals.values()]) if has_seeds else [1.0] * len(intervals)
    rows = [
        [
            name[0].upper() + name[1:],
            f"{interval_text(interval, is_difference=True)}{' *' if p_value < 1 - CONFIDENCE else ''}",
            f"{p_value:.3f}" if has_seeds else DASH,
        ]
        for (name, interval), p_value in zip(intervals.items(), corrected, strict=True)
    ]
    return markdown(["Difference, points", "Mean and interval", "p, Holm"], rows)


def shares_table(runs: Mapping[str, Mapping[int, Line]], position: int, parts: Sequence[str]) -> str:
    """Return shares in percent over windows of 20 steps, for each method the parts that it has."""
    columns = [
        (method, part)
        for part in parts
        for method in METHODS
        if part in ("rollouts", "successes") or method != ON_POLICY
    ]
    rows = []
    for window in range(NUM_STEPS // WINDOW):
        shares = [
            over_seeds(share(line, part, window, position) for line in runs[method].values())
            for method, part in columns
        ]
        rows.append([f"{window * WINDOW + 1}-{(window + 1) * WINDOW}", *map(interval_text, shares)])
    return markdown(["Steps", *(f"{part}, {method}" for method, part in columns)], rows)


def chains_table(runs: Mapping[str, Mapping[int, Line]]) -> str:
    """Return entropy and valid chains of successes by difficulty, without and with code, of the lowest-entropy runs."""
    rows = []
    for difficulty in ("easy", "medium", "hard"):
        cells = []
        for position in (1, 2):
            for code in ("no code", "code"):
                of_runs = [line["chains"].get(f"{difficulty}, {code}") for line in runs[LOWEST].values()]
                means = [sums[position] / sums[0] for sums in of_runs if sums is not None]
                cells.append(interval_text(mean_interval(means)) if means else DASH)
        rows.append([difficulty, *cells])
    return markdown(["", "Entropy, no code", "Entropy, code", "Valid, no code", "Valid, code"], rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)) + "\n"


def tables(lines: Sequence[Line]) -> str:
    """Return all tables of the page, of the seeds that every method has run."""
    seeds = set.intersection(*({line["seed"] for line in lines if line["method"] == method} for method in METHODS))
    runs = {
        method: {line["seed"]: line for line in lines if line["method"] == method and line["seed"] in seeds}
        for method in METHODS
    }
    ends = [[method, interval_text(mean_interval(list(map(held_out, runs[method].values()))))] for method in METHODS]
    return "\n".join(
        [
            f"Seeds of each method: {len(seeds)}; {NUM_STEPS} steps. Shares are in percent.\n",
            "### Differences\n",
            differences_table(differences(runs)),
            "### Trajectories with code\n",
            shares_table(runs, CODE, ("rollouts", "buffer", "replays")),
            "### Invalid chains of thought\n",
            shares_table(runs, INVALID, ("successes", "replays")),
            "### Held-out Avg@8 at the end\n",
            markdown(["Method", "Avg@8"], ends),
            f"### Successes, {LOWEST}\n",
            chains_table(runs),
        ]
    )


def main(page: Path = PAGE) -> None:
    """Write the tables below the mark of the page."""
    head = page.read_text(encoding="utf-8").partition(MARK)[0]
    page.write_text(f"{head}{MARK}\n\n{tables(read_lines(RESULT_FILE))}", encoding="utf-8")


if __name__ == "__main__":
    main()
