"""One picture: differences with intervals over the starting rate, which has a logarithmic axis."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
