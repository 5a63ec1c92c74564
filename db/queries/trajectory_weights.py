"""Importance weights of candidates, replayed or not: does choosing low entropy keep them small?

W = prod_t pi_now / pi_past follows from the mean log-probs of a trajectory when it was generated and when scored.
Candidates whose log-probs were refreshed are left out.
"""

import itertools

import numpy as np
import numpy.typing as npt
from sqlalchemy import and_, select

from db.connections.session import Database
from db.rows.selections import WeightLine
from db.tables import models
from db.tables.run_lookup import find_run_key
from exgrpo_core.policy_optimization.variance import MAX_LOG_WEIGHT

MAX_CANDIDATES = 200_000
Numbers = npt.NDArray[np.float64]


def trajectory_weights(database: Database, run_id: str, shaping_beta: float) -> list[WeightLine]:
    """Return the weights of the newest candidates: replayed, rejected beside another, then replayed by age and entropy.

    Quarters are of the replayed trajectories.
    """
    scored, births = models.candidates, models.trajectories
    is_birth = and_(
        births.c.run_key == scored.c.run_key,
        births.c.trajectory_id == scored.c.trajectory_id,
        births.c.step == scored.c.born_step,  # else its log-probs were refreshed
        ~births.c.is_superseded,
    )
    query = (
        select(
            scored.c.step - scored.c.born_step,
            scored.c.entropy,
            scored.c.is_chosen,
            scored.c.num_tokens,
            -scored.c.nll - births.c.mean_log_prob,
        )
        .join_from(scored, births, is_birth)
        .where(scored.c.nll.is_not(None), births.c.mean_log_prob.is_not(None), ~scored.c.is_superseded)
        .order_by(scored.c.step.desc(), scored.c.question_index, scored.c.position)
        .limit(MAX_CANDIDATES)
    )
    with database.read() as connection:
        rows = connection.execute(query.where(scored.c.run_key == find_run_key(connection, run_id))).all()
    if not rows:
        return []
    ages, entropies, is_chosen, lengths, ratios = np.array([tuple(row) for row in rows], dtype=np.float64).T
    replayed = is_chosen == 1.0
    groups = {"replayed": replayed, "candidates not replayed": ~replayed}
    groups |= {f"replayed, age {name}": replayed & part for name, part in _quarters(ages, replayed, ".0f")}
    groups |= {f"replayed, entropy {name}": replayed & part for name, part in _quarters(entropies, replayed, ".3f")}
    lines = [(name, part) for name, part in groups.items() if part.any()]
    return [_line(name, ratios[part], lengths[part], shaping_beta) for name, part in lines]


def _quarters(values: Numbers, replayed: npt.NDArray[np.bool_], form: str) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Return the quarters of the replayed ones with their ends; values that are equal stay together."""
    known = values[replayed & ~np.isnan(values)]
    if not known.size:
        return []
    ends = np.unique(np.quantile(known, (0.25, 0.5, 0.75, 1.0), method="inverted_cdf")).tolist()
    lowest = (f"up to {ends[0]:{form}}", values <= ends[0])
    return [
        lowest,
        *(
            (f"over {low:{form}} to {end:{form}}", (values > low) & (values <= end))
            for low, end in itertools.pairwise(ends)
        ),
    ]


def _line(group: str, ratios: Numbers, lengths: Numbers, shaping_beta: float) -> WeightLine:
    weights = np.exp(np.clip(ratios * lengths, -MAX_LOG_WEIGHT, MAX_LOG_WEIGHT))
    squares = np.square(weights)
    return WeightLine(
        group=group,
        num_trajectories=weights.size,
        token_ratio=float(np.exp(ratios).mean()),
        mean=float(weights.mean()),
        shaped_mean=float((weights / (weights + shaping_beta)).mean()),
        square_mean=float(squares.mean()),
        largest=float(weights.max()),
        effective_share=float(weights.sum() ** 2 / (weights.size * squares.sum())),
    )
