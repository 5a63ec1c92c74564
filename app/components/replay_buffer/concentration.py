"""Whether replay narrows what is trained on: replays of few questions, and answers that become the same."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from app import theme
from app.components.widgets import figures
from app.components.widgets.curve_view import Line
from app.components.widgets.figures import Look
from db.rows.buffer import ConcentrationPoint, DiversityPoint


def show_replays(points: Sequence[ConcentrationPoint]) -> None:
    """Show the share of replays that a tenth of the questions has, beside that of even draws."""
    last = f"{points[-1].num_replays:,} replays of {points[-1].num_questions:,} questions" if points else "none yet"
    figures.show_card(
        "Replays on the most replayed tenth", f"share of all replays so far; {last}", replays(points),
        "concentration", "Curves: share of replays on the most replayed tenth of stored questions, and of even draws",
        "Above the grey curve, replay returns to the same questions more often than chance would: a sign of premature "
        "convergence if the answers become fewer too.",
    )  # fmt: skip


def show_answers(points: Sequence[DiversityPoint]) -> None:
    """Show how many different answers questions get."""
    figures.show_card(
        "Different answers", "per question: among K fresh rollouts, or K-1 beside a replay",
        answers(points), "answer-diversity", "Curves: different answers per question, fresh and replayed",
    )  # fmt: skip


def replays(points: Sequence[ConcentrationPoint]) -> go.Figure | None:
    """Return both shares over steps, or None without replays."""
    if not points:
        return None
    colours = theme.palette()
    figure = figures.new_figure()
    steps = _numbers([point.step for point in points])
    top, even = (_numbers([getattr(point, name) for point in points]) for name in ("top_share", "even_share"))
    figures.add_line(figure, "this run", Line(steps, top), Look(colours.replay, is_share=True))
    figures.add_line(figure, "even draws", Line(steps, even), Look(colours.muted, "dot", is_share=True))
    figures.show_shares(figure)
    return figure


def answers(points: Sequence[DiversityPoint]) -> go.Figure | None:
    """Return different answers per question over steps, or None without any."""
    colours = theme.palette()
    figure = figures.new_figure()
    for name, colour in (("fresh", colours.fresh), ("replayed", colours.replay)):
        seen = [(point.step, getattr(point, name)) for point in points if not np.isnan(getattr(point, name))]
        if seen:
            steps, values = map(_numbers, zip(*seen, strict=True))
            figures.add_line(figure, name, Line(steps, values), Look(colour))
    return figure if figure.data else None


def _numbers(values: Sequence[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)
