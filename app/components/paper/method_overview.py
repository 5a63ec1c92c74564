"""The method drawn for this project: each box leads to the page that shows it live."""

from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

import streamlit as st

from app import theme
from app.components.paper.thumbnails import as_image
from app.components.widgets.figures import faded
from app.theme import Palette

WIDTH, HEIGHT = 1180, 430
_BOX_HEIGHT = 62


@dataclass(frozen=True, slots=True)
class Box:
    """One part of the method at (x, y), and the page that shows it."""

    key: str
    title: str
    text: str
    x: int
    y: int
    page: str
    query: tuple[tuple[str, str], ...] = ()
    colour: str = "muted"
    """A colour of the palette by its name."""
    width: int = 158


_OVER_TIME, _ENTROPY = (("view", "Over time"),), (("view", "Policy entropy"),)
_CORRECT = (("outcome", "correct"),)
BOXES = (
    Box("questions", "Questions D", "fresh ones, none retired", 24, 56, "trajectories", colour="fresh"),
    Box("buffer", "Replay buffer E", "successes by question", 24, 190, "replay_buffer", _OVER_TIME, "replay"),
    Box("buckets", "Buckets by Acc", "latest correctness k/K", 212, 190, "replay_buffer", colour="replay"),
    Box("draws", "Medium first", "p ∝ N(Acc; 0.5, 1)", 400, 190, "replay_buffer", (("view", "What if"),), "replay"),
    Box("choice", "Lowest entropy o*", "under the policy now", 588, 190, "selection_audit", colour="replay"),
    Box("retired", "Retired set S", "solved K of K", 24, 324, "replay_buffer", (("view", "Flow"),), "retired"),
    Box("rollouts", "K or K-1 rollouts", "verified rewards", 588, 56, "trajectories", colour="fresh"),
    Box("batch", "Mixed mini-batch", "fresh and replayed groups", 800, 122, "run", colour="held_out", width=180),
    Box("objective", "Objective", "w·Â fresh, f(w*)·Â replayed", 800, 236, "run", colour="held_out", width=180),
    Box("policy", "Policy π", "writes the next rollouts", 1006, 180, "entropy_and_judge", _ENTROPY, "held_out", 154),
    Box("collect", "Keep successes", "1 to K-1 correct", 400, 324, "trajectories", _CORRECT, "replay"),
)  # fmt: skip
_ARROWS = (
    ("questions", "rollouts"), ("buffer", "buckets"), ("buckets", "draws"), ("draws", "choice"), ("choice", "batch"),
    ("rollouts", "batch"), ("batch", "objective"), ("objective", "policy"),
    ("collect", "retired"),
)  # fmt: skip
_BY_KEY = {box.key: box for box in BOXES}


def show(run_id: str | None) -> None:
    """Show the drawing; boxes of pages about one run open this run's, where there is one."""
    st.html(html(run_id))


def html(run_id: str | None) -> str:
    """Return the drawing with a link over every box."""
    links = "".join(_link(box, run_id) for box in BOXES)
    alt = "Experience management: questions, replay buffer, buckets, draws, choice. Policy optimization: mixed batch"
    return f'<div style="position:relative;min-width:760px">{as_image(svg(theme.palette()), alt)}{links}</div>'


def address(box: Box, run_id: str | None) -> str:
    """Return the address of the page that shows a box."""
    query = dict(box.query) | ({"run": run_id} if run_id else {})
    return f"{box.page}?{urlencode(query)}" if query else box.page


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
