"""Small pictures of figures and tables as SVG: a page of them is there at once, where charts would take seconds."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape

import numpy as np

from app.theme import Palette

WIDTH, HEIGHT = 280, 116
_LEFT, _RIGHT, _TOP, _BOTTOM = 8.0, 272.0, 10.0, 106.0
_MAX_LINES, _MAX_POINTS = 3, 60
_BAR_SHARE = 0.68
Curve = Sequence[tuple[float, float]]
"""Points (x, y) of one curve."""


def as_image(svg: str, alt: str) -> str:
    """Return a picture as an HTML image that fills its column."""
    data = b64encode(svg.encode()).decode()
    return (
        f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(alt, quote=True)}" style="width:100%;display:block">'
    )


def bars(values: Sequence[float], is_ours: Sequence[bool], colours: Palette) -> str:
    """Return one bar a value, those of ExGRPO in the colour of replay; bars begin a little below the lowest."""
    low, high = min(values), max(values)
    base = 0.0 if low <= 0.5 * high else low - 0.35 * (high - low)
    scale = (_BOTTOM - _TOP) / ((high - base) or 1.0)
    slot = (_RIGHT - _LEFT) / len(values)
    parts = []
    for index, (value, ours) in enumerate(zip(values, is_ours, strict=True)):
        height = max(2.0, (value - base) * scale)
        x, width = _LEFT + index * slot + slot * (1 - _BAR_SHARE) / 2, min(slot * _BAR_SHARE, 44.0)
        colour = colours.replay if ours else colours.muted
        parts.append(
            f'<rect x="{x:.1f}" y="{_BOTTOM - height:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" '
            f'fill="{colour}" fill-opacity="{1.0 if ours else 0.55}"/>'
        )
    return _picture(parts, colours)


def lines(curves: Sequence[Curve], colours: Palette) -> str:
    """Return up to three curves on common axes."""
    drawn = [_finite(curve)[:: max(1, len(curve) // _MAX_POINTS)] for curve in curves[:_MAX_LINES]]
    drawn = [curve for curve in drawn if len(curve)]
    if not drawn:
        return sketch_lines(colours)
    points = np.concatenate(drawn)
    (left, low), (right, high) = points.min(axis=0), points.max(axis=0)
    wheel = (colours.replay, colours.fresh, colours.held_out)
    parts = []
    for curve, colour in zip(drawn, wheel, strict=False):
        x = _LEFT + (curve[:, 0] - left) / ((right - left) or 1.0) * (_RIGHT - _LEFT)
        y = _BOTTOM - 4 - (curve[:, 1] - low) / ((high - low) or 1.0) * (_BOTTOM - _TOP - 8)
        parts.append(_polyline(x, y, colour))
    return _picture(parts, colours)


def sketch_lines(colours: Palette) -> str:
    """Return the shape of a chart over steps, for a figure of which there are no numbers yet."""
    x = np.linspace(0.0, 1.0, 40)
    shapes = (0.25 + 0.55 * (1 - np.exp(-3 * x)), 0.2 + 0.35 * x)
    return _sketch(x, shapes, colours)


def sketch_densities(colours: Palette) -> str:
    """Return the shape of two densities, for a figure of which there are no numbers."""
    x = np.linspace(0.0, 1.0, 60)
    shapes = [0.85 * np.exp(-(((x - centre) / width) ** 2)) for centre, width in ((0.3, 0.13), (0.55, 0.2))]
    return _sketch(x, shapes, colours)


def table(num_rows: int, colours: Palette) -> str:
    """Return the shape of a table of words."""
    parts = []
    for row in range(num_rows):
        y = _TOP + row * (_BOTTOM - _TOP) / num_rows + 3
        for column, (x, width) in enumerate(((_LEFT, 60), (84.0, 110), (208.0, 64))):
            shade = 0.75 if row == 0 else 0.35
            colour = colours.replay if column == 0 and row else colours.muted
            parts.append(
                f'<rect x="{x}" y="{y:.1f}" width="{width}" height="5" rx="2.5" fill="{colour}" '
                f'fill-opacity="{shade}"/>'
            )
    return _picture(parts, colours, has_axis=False)


def method(colours: Palette) -> str:
    """Return the method in small: experience at the left, optimization at the right."""
    boxes = ((12, 14, colours.fresh), (12, 66, colours.replay), (104, 14, colours.muted), (104, 66, colours.replay),
             (196, 40, colours.held_out))  # fmt: skip
    arrows = ((84, 31, 104, 31), (84, 83, 104, 83), (176, 31, 196, 50), (176, 83, 196, 66))
    parts = [
        f'<rect x="{x}" y="{y}" width="72" height="34" rx="7" fill="{colour}" fill-opacity="0.3" stroke="{colour}"/>'
        for x, y, colour in boxes
    ]
    parts += [
        f'<path d="M{x} {y}L{to_x} {to_y}" stroke="{colours.muted}" stroke-width="2"/>' for x, y, to_x, to_y in arrows
    ]
    return _picture(parts, colours, has_axis=False)


def _sketch(x: np.ndarray, shapes: Sequence[np.ndarray], colours: Palette) -> str:
    parts = [
        _polyline(_LEFT + x * (_RIGHT - _LEFT), _BOTTOM - shape * (_BOTTOM - _TOP), colours.muted, dash="5 5")
        for shape in shapes
    ]
    parts.append(
        f'<text x="{_RIGHT}" y="{_TOP + 8}" text-anchor="end" font-size="10" font-family="system-ui,sans-serif" '
        f'fill="{colours.muted}">sketch: no numbers</text>'
    )
    return _picture(parts, colours)


def _polyline(x: np.ndarray, y: np.ndarray, colour: str, dash: str = "none") -> str:
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round" '
        f'stroke-dasharray="{dash}"/>'
    )


def _picture(parts: Sequence[str], colours: Palette, *, has_axis: bool = True) -> str:
    axis = f'<path d="M{_LEFT} {_BOTTOM}H{_RIGHT}" stroke="{colours.muted}" stroke-opacity="0.6"/>' if has_axis else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f"{''.join(parts)}{axis}</svg>"
    )


def _finite(curve: Curve) -> np.ndarray:
    points = np.asarray(curve, dtype=np.float64).reshape(-1, 2)
    return points[np.isfinite(points).all(axis=1)]
