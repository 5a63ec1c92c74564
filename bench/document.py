"""Puts the newest figures into docs/performance.md and draws how cost grows with work, from bench/results/*.json.

In the document a table is between `<!-- figures NAME also FIGURE ... -->` and `<!-- end -->`; NAME is a result's file.
It shows the figures with a target and those named after `also`; without either, all. Figures called
`growth/CURVE/WORK` are drawn into docs/images/growth-NAME.svg, both axes logarithmic, and are shown below it.

Run `python -m bench.document` after `make bench LONG=1`.
"""

import json
import math
import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import COMMIT, LOAD, meets

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
QUIET_LOAD = 2.5
"""A result that was taken at a higher load average is marked: its times by the clock are ceilings."""
GROWTH = "growth/"
MEASURED = {
    "pages": ("app", "db"),
    "startup": ("app",),
    "recording": ("jobs/recording", "db/ingest"),
    "grading": ("jobs/grading",),
    "replay_buffer": ("exgrpo_core/experience_management", "exgrpo_core/step"),
    "exgrpo_overhead": ("exgrpo_core", "jobs/engines/embedded"),
    "verl_step": ("exgrpo_core", "jobs/engines/verl_ray"),
    "verl_driver": ("exgrpo_core", "jobs/engines/verl_ray"),
    "verl_overlap": ("bench/verl_overlap.py", "jobs/studies/running.py"),
}
"""What a result is of, where that is not the embedded engine: its table is marked when this changed after it."""
_PART = re.compile(r"(<!-- figures (\w+)(?: also ([^>]*))? -->\n).*?(<!-- end -->)", re.DOTALL)
_COLOURS = ("#2a6fb0", "#c05a1c", "#3b8a4b", "#8a4b9c", "#6b6b6b")
_WIDTH, _HEIGHT, _LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 720, 300, 70, 20, 380, 220

Curves = dict[str, list[tuple[float, float]]]


def table(result: Mapping[str, Any], also: Sequence[str] = ()) -> str:
    """Return as Markdown a result's figures with a target, then those named in `also`; without either, all."""
    figures, targets = result["figures"], result["targets"]
    names = [*targets, *also] or [name for name in figures if not name.startswith((GROWTH, LOAD, COMMIT))]
    rows = [_row(name, figures[name], targets.get(name)) for name in names]
    notes = _age_note(result.get("bench", ""), figures.get(COMMIT)) + _note(figures.get(LOAD))
    return f"{notes}| Figure | Measured | Target |\n|---|---|---|\n" + "".join(rows)


def _age_note(bench: str, commit: str | None) -> str:
    """Return at which commit a result was measured, and whether what it measures has changed since."""
    if commit is None:
        return "Commit not recorded.\n\n"
    paths = MEASURED.get(bench, ("jobs/engines/embedded",))
    command = ["git", "log", "--oneline", f"{commit.removesuffix('+')}..HEAD", "--", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    is_newest = done.returncode == 0 and not done.stdout
    return f"Measured at `{commit}`{'' if is_newest else '; **changed since**'}.\n\n"


def _note(load: float | None) -> str:
    if load is None:
        return "Load not recorded.\n\n"
    if load <= QUIET_LOAD:
        return ""
    return f"The machine was busy (load average {load:.1f}): times are ceilings.\n\n"


def _row(name: str, value: float | str | bool | None, target: str | None) -> str:
    text = _digits(value, 4) if isinstance(value, float | int) and not isinstance(value, bool) else str(value)
    missed = "" if target is None or meets(value, target) else " **missed**"
    return f"| `{name}` | {text}{missed} | {(target or '').replace(' ', '')} |\n"


def _digits(value: float, num_digits: int) -> str:
    """Return a number with so many digits that count, a large one as a whole number."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.{num_digits}g}"


def growth(figures: Mapping[str, Any]) -> Curves:
    """Return the curves of a result: points of work and cost."""
    curves: Curves = defaultdict(list)
    for name, value in figures.items():
        if name.startswith(GROWTH):
            curve, work = name.removeprefix(GROWTH).rsplit("/", 1)
            curves[curve].append((float(work), float(value)))
    return {name: sorted(points) for name, points in curves.items()}


def draw(curves: Curves) -> str:
    """Return an SVG of the curves over their work, each with its first and last value."""
    points = [point for item in curves.values() for point in item]
    x_axis, y_axis = (_Axis([point[i] for point in points]) for i in (0, 1))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
    ]
    for work in sorted({point[0] for point in points}):
        x = _LEFT + _PLOT_WIDTH * x_axis.fraction(work)
        lines.append(f'<text x="{x:.0f}" y="{_TOP + _PLOT_HEIGHT + 20}" text-anchor="middle">{work:,.6g}</text>')
    for value in y_axis.ticks():
        y = _TOP + _PLOT_HEIGHT * (1 - y_axis.fraction(value))
        lines.append(f'<path d="M{_LEFT} {y:.0f}h{_PLOT_WIDTH}" stroke="#dddddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{value:,.6g}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [
            (_LEFT + _PLOT_WIDTH * x_axis.fraction(x), _TOP + _PLOT_HEIGHT * (1 - y_axis.fraction(y))) for x, y in curve
        ]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        label = f"{name}: {_digits(curve[0][1], 3)} to {_digits(curve[-1][1], 3)}"
        lines.append(
            f'<text x="{_LEFT + _PLOT_WIDTH + 16}" y="{_TOP + 20 * number + 12}" fill="{colour}">{label}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


class _Axis:
    def __init__(self, values: list[float]) -> None:
        self._low, self._high = math.log10(min(values)), math.log10(max(values))

    def fraction(self, value: float) -> float:
        """Return where a value lies, 0 to 1."""
        span = self._high - self._low
        return (math.log10(value) - self._low) / span if span else 0.5

    def ticks(self) -> list[float]:
        """Return 1, 2 and 5 times the powers of ten between the ends."""
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        round_ones = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        return [value for value in round_ones if 0.0 <= self.fraction(value) <= 1.0]


def main() -> None:
    """Write the tables and the pictures."""
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}

    def fill(match: re.Match[str]) -> str:
        result = results.get(match[2])
        if result is None:
            return f"{match[1]}Not measured yet.\n{match[4]}"
        picture = f"\n![How cost grows with work](images/growth-{match[2]}.svg)\n" if growth(result["figures"]) else ""
        return match[1] + table(result, (match[3] or "").split()) + picture + match[4]

    DOCUMENT.write_text(_PART.sub(fill, DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    for name, result in results.items():
        curves = growth(result.get("figures", {}))
        if curves:
            (IMAGES / f"growth-{name}.svg").write_text(draw(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
