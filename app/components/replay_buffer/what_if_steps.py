"""What other settings would have changed in every step: the expected share of draws, from recorded scores alone."""

import numpy as np
import plotly.graph_objects as go

from app import theme
from app.components.widgets import figures
from app.components.widgets.curve_view import Line
from app.theme import Look
from db.queries.all_draws import AllDraws
from exgrpo_core.experience_management.bucket_sampler import bucket_probabilities
from exgrpo_core.methods.protocols import CandidateColumns, TrajectorySelector
from exgrpo_core.types import Float64Array, Int64Array
from jobs.actions.replay.other_settings import Settings


def changed_shares(
    draws: AllDraws, settings: Settings, batch_size: int, rollouts_per_question: int
) -> tuple[Int64Array, Float64Array]:
    """Return the steps that drew something, and the expected share of each one's draws that would be others.

    A draw is the same if its question stays, with probability min(1, p'_k / p_k) as in `other_settings.redraw`, and
    its chosen trajectory does. Steps after the first are as recorded: a changed draw changes no later one here.
    """
    steps, row = np.unique(draws.buckets["step"], return_inverse=True)
    shape = (len(steps), rollouts_per_question + 1)
    sizes, old, drawn = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    place = row, draws.buckets["bucket"]
    sizes[place] = draws.buckets["num_questions"]
    old[place] = np.nan_to_num(draws.buckets["probability"])
    drawn[place] = draws.buckets["num_drawn"]
    new = _probabilities(sizes, settings)
    stays = np.minimum(1.0, np.divide(new, old, out=np.ones(shape), where=old > 0))
    kept = drawn * stays
    wanted = np.minimum(int(settings.ratio * batch_size + 1e-9), sizes.sum(axis=1))
    fits = np.minimum(1.0, np.divide(wanted, kept.sum(axis=1), out=np.ones(len(steps)), where=kept.sum(axis=1) > 0))
    same = (kept * _same_choices(draws, settings.estimator, steps, shape)).sum(axis=1) * fits
    num_draws = np.maximum(drawn.sum(axis=1), wanted)
    is_drawn = drawn.sum(axis=1) > 0
    return steps[is_drawn], np.clip(1.0 - same[is_drawn] / num_draws[is_drawn], 0.0, 1.0)


def _probabilities(sizes: Float64Array, settings: Settings) -> Float64Array:
    """Return p' of each step and bucket; empty buckets have none."""
    num_buckets = sizes.shape[1] - 1
    rates = np.arange(1, num_buckets + 1) / num_buckets
    weights = np.zeros(sizes.shape)
    weights[:, 1:] = bucket_probabilities(rates, settings.center, settings.spread)
    weights[sizes == 0] = 0.0
    total = weights.sum(axis=1, keepdims=True)
    np.divide(weights, total, out=weights, where=total > 0)
    return weights


def _same_choices(
    draws: AllDraws, estimator: TrajectorySelector | None, steps: Int64Array, shape: tuple[int, int]
) -> Float64Array:
    """Return the share of each step's and bucket's drawn questions whose chosen trajectory stays, 1 without any."""
    rows, questions = draws.candidates, draws.questions
    if estimator is None or not len(rows):
        return np.ones(shape)
    scores = estimator.score(CandidateColumns(rows["entropy"], rows["nll"], rows["num_tokens"]))
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = (np.diff(rows["step"]) != 0) | (np.diff(rows["question_index"]) != 0)
    starts = np.flatnonzero(is_first)
    lowest = np.repeat(np.minimum.reduceat(scores, starts), np.diff([*starts, len(rows)]))
    hits = np.flatnonzero(scores == lowest)  # none where a score is not known
    groups, first_hits = np.unique(np.cumsum(is_first)[hits] - 1, return_index=True)
    stays = np.zeros(len(starts), dtype=np.bool_)
    stays[groups] = rows["is_chosen"][hits[first_hits]]
    num, num_same = np.zeros(shape), np.zeros(shape)
    place = np.searchsorted(steps, questions["step"]), questions["bucket"]
    np.add.at(num, place, 1)
    np.add.at(num_same, place, stays)
    return np.divide(num_same, num, out=np.ones(shape), where=num > 0)


def chart(steps: Int64Array, shares: Float64Array) -> go.Figure:
    """Return the share of draws that change over the steps."""
    colours = theme.palette()
    figure = figures.new_figure(235, y={"tickformat": ".0%", "range": [0, 1.02]})
    line = Line(steps.astype(np.float64), shares.astype(np.float64))
    figures.add_line(figure, "share that changes", line, Look(colours.replay), is_share=True)
    return figure
