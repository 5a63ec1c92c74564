"""Whether replay narrows what is trained on: how replays spread over questions, and how many answers they still get."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, case, func, select

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.buffer import ancestry
from exgrpo.db.rows.replays import ConcentrationPoint, DiversityPoint
from exgrpo.db.tables import models
from exgrpo.db.tables.shared_reads import find_run_key

MAX_POINTS = 60
MAX_TEXTS = 4_000
TOP = 0.1
_LEAST_SIMULATED, _MOST_SIMULATED, _SIMULATED_COUNTS = 20, 2_000, 200_000
"""Even draws simulated at a point: as many as have so many counts of questions together."""
_END_CHARACTERS = 200
_BOX = "\\boxed{"


def replay_concentration(database: Database, run_id: str) -> list[ConcentrationPoint]:
    """Return what share of all replays so far went to the most replayed questions, at some steps."""
    replays_by_step: dict[int, Counter[int]] = defaultdict(Counter)
    first_stored: dict[int, int] = {}
    with database.read() as connection:
        for run_key, until in reversed(ancestry(connection, run_id)):
            _add_run(connection, run_key, until, replays_by_step, first_stored)
    steps = sorted(replays_by_step)
    shown = {*steps[:: max(1, -(-len(steps) // MAX_POINTS))], *steps[-1:]}
    rng, counts, points = np.random.default_rng(0), Counter[int](), []
    for step in steps:
        counts += replays_by_step[step]
        if step in shown:
            num_questions = len(counts.keys() | {item for item, first in first_stored.items() if first < step})
            points.append(_point(step, list(counts.values()), num_questions, rng))
    return points


def answer_diversity(database: Database, run_id: str) -> list[DiversityPoint]:
    """Return the mean number of different last boxes in the responses to a question, of as many steps as are read fast.

    Responses without a box count as one answer.
    """
    fresh, texts = models.trajectories, models.trajectory_texts
    length = func.length(texts.c.text)
    tail = func.substr(texts.c.text, length - _END_CHARACTERS + 1)
    # Most boxes are at the end; a whole text is read only where its last one is before that.
    is_before = texts.c.text.contains(_BOX, autoescape=True) & ~tail.contains(_BOX, autoescape=True)
    end = case((length <= _END_CHARACTERS, texts.c.text), (is_before, texts.c.text), else_=tail)
    with database.read() as connection:
        run_key = find_run_key(connection, run_id)
        steps = _steps_to_read(connection, run_key)
        query = (
            select(fresh.c.step, fresh.c.question_index, end)
            .join(texts, texts.c.trajectory_key == fresh.c.trajectory_key)
            .where(fresh.c.run_key == run_key, fresh.c.step.in_(steps))
        )
        answers: dict[tuple[int, int], set[str]] = defaultdict(set)
        for step, question, text in connection.execute(query):
            answers[step, question].add(_last_box(text))
        chosen = models.selections
        is_here = (chosen.c.run_key == run_key) & chosen.c.step.in_(steps)
        drawn = {
            (row[0], row[1])
            for row in connection.execute(select(chosen.c.step, chosen.c.question_index).where(is_here))
        }
    return [
        DiversityPoint(
            step,
            _mean([len(given) for key, given in answers.items() if key[0] == step and key not in drawn]),
            _mean([len(given) for key, given in answers.items() if key[0] == step and key in drawn]),
        )
        for step in steps
    ]


def _add_run(
    connection: Connection,
    run_key: int,
    until: int,
    replays_by_step: dict[int, Counter[int]],
    first_stored: dict[int, int],
) -> None:
    replays, changes = models.replays, models.buffer_changes
    drawn = (
        select(replays.c.step, replays.c.question_index, func.count())
        .where(replays.c.run_key == run_key, replays.c.step <= until, ~replays.c.is_external)
        .group_by(replays.c.step, replays.c.question_index)
    )
    for step, question, count in connection.execute(drawn):
        replays_by_step[step][question] += count
    is_stored = (changes.c.run_key == run_key) & (changes.c.step <= until) & (changes.c.kind == "inserted")
    stored = (
        select(changes.c.question_index, func.min(changes.c.step)).where(is_stored).group_by(changes.c.question_index)
    )
    for question, step in connection.execute(stored):
        first_stored[question] = min(step, first_stored.get(question, step))


def _point(step: int, counts: list[int], num_questions: int, rng: np.random.Generator) -> ConcentrationPoint:
    total = sum(counts)
    num_top = int(np.ceil(TOP * num_questions))
    num_simulated = min(_MOST_SIMULATED, max(_LEAST_SIMULATED, _SIMULATED_COUNTS // num_questions))
    even = rng.multinomial(total, np.full(num_questions, 1 / num_questions), size=num_simulated)
    even_share = np.sort(even, axis=1)[:, -num_top:].sum() / (total * num_simulated)
    top_share = sum(sorted(counts)[-num_top:]) / total
    return ConcentrationPoint(step, total, len(counts), num_questions, top_share, float(even_share))


def _steps_to_read(connection: Connection, run_key: int | None) -> list[int]:
    fresh = models.trajectories
    sizes = (
        select(fresh.c.step, func.count())
        .where(fresh.c.run_key == run_key)
        .group_by(fresh.c.step)
        .order_by(fresh.c.step)
    )
    rows = connection.execute(sizes).all()
    if not rows:
        return []
    num_read = min(MAX_POINTS, max(2, MAX_TEXTS // max(row[1] for row in rows)))
    steps: list[int] = [row[0] for row in rows]
    return [steps[position] for position in np.unique(np.linspace(0, len(steps) - 1, num_read).round().astype(int))]


def _last_box(text: str) -> str:
    _, box, answer = text.rpartition(_BOX)
    return answer.rpartition("}")[0].strip() if box else ""


def _mean(values: Sequence[int]) -> float:
    return float(np.mean(values)) if values else float("nan")
