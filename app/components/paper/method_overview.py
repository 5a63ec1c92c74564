"""Drawings as SVG: the method, whose boxes lead to pages, and small pictures, at once where charts take seconds."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

import numpy as np
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets.figures import faded
from exgrpo.app.theme import Palette

_SMALL_WIDTH, _SMALL_HEIGHT = 280, 116
_LEFT, _RIGHT, _TOP, _BOTTOM = 8.0, 272.0, 10.0, 106.0
_MAX_LINES, _MAX_POINTS = 3, 60
_BAR_SHARE = 0.68
Curve = Sequence[tuple[float, float]]
"""Points (x, y) of one curve."""
WIDTH, HEIGHT = 1180, 430
_BOX_HEIGHT = 62
_BUFFER, _TRAJECTORIES = (("view", "Buffer"),), (("view", "Trajectories"),)
_ARROWS = (
    ("questions", "rollouts"), ("buffer", "buckets"), ("buckets", "draws"), ("draws", "choice"), ("choice", "batch"),
    ("rollouts", "batch"), ("batch", "objective"), ("objective", "policy"),
    ("collect", "retired"),
)  # fmt: skip


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
    known = [np.asarray(curve, dtype=np.float64).reshape(-1, 2) for curve in curves[:_MAX_LINES]]
    known = [points[np.isfinite(points).all(axis=1)] for points in known]
    drawn = [points[:: max(1, len(points) // _MAX_POINTS)] for points in known if len(points)]
    if not drawn:
        return sketch(colours)
    points = np.concatenate(drawn)
    (left, low), (right, high) = points.min(axis=0), points.max(axis=0)
    wheel = (colours.replay, colours.fresh, colours.held_out)
    parts = []
    for curve, colour in zip(drawn, wheel, strict=False):
        x = _LEFT + (curve[:, 0] - left) / ((right - left) or 1.0) * (_RIGHT - _LEFT)
        y = _BOTTOM - 4 - (curve[:, 1] - low) / ((high - low) or 1.0) * (_BOTTOM - _TOP - 8)
        parts.append(_polyline(x, y, colour))
    return _picture(parts, colours)


def sketch(colours: Palette) -> str:
    """Return the shape of two densities, for a figure of which there are no numbers."""
    x = np.linspace(0.0, 1.0, 60)
    shapes = [0.85 * np.exp(-(((x - centre) / width) ** 2)) for centre, width in ((0.3, 0.13), (0.55, 0.2))]
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


def _picture(parts: Sequence[str], colours: Palette) -> str:
    axis = f'<path d="M{_LEFT} {_BOTTOM}H{_RIGHT}" stroke="{colours.muted}" stroke-opacity="0.6"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SMALL_WIDTH} {_SMALL_HEIGHT}" '
        f'width="{_SMALL_WIDTH}" height="{_SMALL_HEIGHT}">'
        f"{''.join(parts)}{axis}</svg>"
    )


@dataclass(frozen=True, slots=True)
class Box:
    """One part of the method at (x, y), and the parameters of the run's page that shows it."""

    key: str
    title: str
    text: str
    x: int
    y: int
    query: tuple[tuple[str, str], ...] = ()
    colour: str = "muted"
    """A colour of the palette by its name."""
    width: int = 158


BOXES = (
    Box("questions", "Questions D", "fresh ones, none retired", 24, 56, _TRAJECTORIES, "fresh"),
    Box("buffer", "Replay buffer E", "successes by question", 24, 190, (*_BUFFER, ("part", "Over time")), "replay"),
    Box("buckets", "Buckets by Acc", "latest correctness k/K", 212, 190, _BUFFER, "replay"),
    Box("draws", "Medium first", "p ∝ N(Acc; 0.5, 1)", 400, 190, (("view", "Step"),), "replay"),
    Box("choice", "Lowest entropy o*", "under the policy now", 588, 190, (("view", "Step"),), "replay"),
    Box("retired", "Retired set S", "solved K of K", 24, 324, (*_BUFFER, ("part", "Flow")), "retired"),
    Box("rollouts", "K or K-1 rollouts", "verified rewards", 588, 56, _TRAJECTORIES, "fresh"),
    Box("batch", "Mixed mini-batch", "fresh and replayed groups", 800, 122, (), "held_out", 180),
    Box("objective", "Objective", "w·Â fresh, f(w*)·Â replayed", 800, 236, (), "held_out", 180),
    Box("policy", "Policy π", "writes the next rollouts", 1006, 180, (), "held_out", 154),
    Box("collect", "Keep successes", "1 to K-1 correct", 400, 324, (*_TRAJECTORIES, ("outcome", "correct")), "replay"),
)  # fmt: skip
_BY_KEY = {box.key: box for box in BOXES}


def show(run_id: str | None) -> None:
    """Show the drawing; boxes of pages about one run open this run's, where there is one."""
    st.html(html(run_id))


def html(run_id: str | None) -> str:
    """Return the drawing with a link over every box."""
    links = "".join(_link(box, run_id) for box in BOXES)
    alt = "Experience management: questions, replay buffer, buckets, draws, choice. Policy optimization: mixed batch"
    drawn = f'<div style="position:relative;min-width:760px">{as_image(svg(theme.palette()), alt)}{links}</div>'
    return f'<div style="overflow-x:auto">{drawn}</div>'


def address(box: Box, run_id: str | None) -> str:
    """Return the address of the page that shows a box."""
    return f"run?{urlencode([*({'run': run_id} if run_id else {}).items(), *box.query])}".removesuffix("?")


def svg(colours: Palette) -> str:
    """Return the drawing: two phases, boxes and arrows."""
    parts = [
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{colours.muted}"/></marker></defs>',
        _phase(8, 760, "(a) Experience management", colours.replay, colours),
        _phase(784, 388, "(b) Policy optimization", colours.held_out, colours),
    ]
    parts += [_arrow(_BY_KEY[start], _BY_KEY[end], colours) for start, end in _ARROWS]
    # The new policy writes the next rollouts; their successes go into the buffer.
    parts.append(_path("M1083 180V72H748", colours))
    parts.append(_path("M640 118V148H573V355H560", colours))
    parts.append(_path("M479 324V288H103V254", colours))
    parts += [_box(box, colours) for box in BOXES]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui,sans-serif">'
        f"{''.join(parts)}</svg>"
    )


def _phase(x: int, width: int, title: str, colour: str, colours: Palette) -> str:
    return (
        f'<rect x="{x}" y="8" width="{width}" height="{HEIGHT - 16}" rx="14" fill="{colour}" fill-opacity="0.05" '
        f'stroke="{colours.muted}" stroke-opacity="0.35"/>'
        f'<text x="{x + 16}" y="32" font-size="15" font-weight="600" fill="{colours.text}">{title}</text>'
    )


def _box(box: Box, colours: Palette) -> str:
    colour = str(getattr(colours, box.colour))
    return (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{_BOX_HEIGHT}" rx="10" '
        f'fill="{faded(colour, 0.16)}" stroke="{colour}" stroke-width="1.6"/>'
        f'<text x="{box.x + box.width / 2}" y="{box.y + 27}" text-anchor="middle" font-size="13.5" font-weight="600" '
        f'fill="{colours.text}">{escape(box.title)}</text>'
        f'<text x="{box.x + box.width / 2}" y="{box.y + 46}" text-anchor="middle" font-size="11.5" '
        f'fill="{colours.text}" fill-opacity="0.75">{escape(box.text)}</text>'
    )


def _arrow(start: Box, end: Box, colours: Palette) -> str:
    start_y, end_y = start.y + _BOX_HEIGHT / 2, end.y + _BOX_HEIGHT / 2
    if abs(start.x - end.x) < start.width / 2:
        x = start.x + start.width / 2
        return _path(f"M{x} {start.y + _BOX_HEIGHT}V{end.y - 2}", colours)
    if start.x > end.x:
        return _path(f"M{start.x} {start_y}H{end.x + end.width + 2}", colours)
    middle = end.x - 16
    return _path(f"M{start.x + start.width} {start_y}H{middle}V{end_y}H{end.x - 2}", colours)


def _path(d: str, colours: Palette) -> str:
    return (
        f'<path d="{d}" fill="none" stroke="{colours.muted}" stroke-width="1.6" stroke-linejoin="round" '
        f'marker-end="url(#tip)"/>'
    )


def _link(box: Box, run_id: str | None) -> str:
    left, top = 100 * box.x / WIDTH, 100 * box.y / HEIGHT
    width, height = 100 * box.width / WIDTH, 100 * _BOX_HEIGHT / HEIGHT
    label = escape(f"{box.title}: {box.text}", quote=True)
    return (
        f'<a href="{escape(address(box, run_id), quote=True)}" target="_self" aria-label="{label}" title="{label}" '
        f'style="position:absolute;left:{left:.2f}%;top:{top:.2f}%;width:{width:.2f}%;height:{height:.2f}%"></a>'
    )
