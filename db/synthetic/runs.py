"""Many made-up runs out of one recorded run, for trying pages and measuring them at scale.

Metrics follow the recorded run's, stretched over the requested number of steps and varied from run to run. Trajectories
are copies of the recorded ones, one after the other, each with other questions: buckets, selections, replays and
lineages stay consistent as they were recorded. Made-up sentences follow their texts. Equal arguments give equal rows.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from sqlalchemy import Connection, insert, select, text

from db.connections.session import Database, DatabaseError
from db.ingest.bulk_load import bulk_load
from db.ingest.trajectory_blocks import make_blocks
from db.ingest.upsert import insert_new
from db.synthetic.text import sentences
from db.synthetic.trajectories import Copy, copy_trajectories, plan_copies
from db.tables import models
from db.tables.metric_values import VALUE
from db.tables.run_lookup import find_run_key, require_run_key
from db.tables.step_values import list_names

SYNTHETIC = "synthetic"
"""Tag of such runs, and the start of their names."""
_FIRST_BIRTH = datetime(2026, 1, 1, tzinfo=UTC)
_ENDS = ("finished",) * 7 + ("stopped", "failed", "lost")
_SYNTHETIC_KEYS = f"SELECT run_key FROM runs WHERE run_key BETWEEN :first AND :last AND run_id LIKE '{SYNTHETIC}-%'"
"""Keys of made-up runs in a range; a real run ingested at the same time may be among them."""


class SyntheticRunsError(DatabaseError):
    """The database cannot be filled; one sentence why and what to do."""


@dataclass(frozen=True, slots=True)
class SyntheticSize:
    """The size of the data; seven tenths of the trajectories are the first run's."""

    num_runs: int
    num_steps: int
    num_trajectories: int
    has_texts: bool = True
    """Without texts searches find nothing, and millions of trajectories are made in minutes."""


def add_synthetic_runs(
    database: Database, template_run_id: str, size: SyntheticSize, report: Callable[[str], None]
) -> None:
    """Add runs made out of a recorded one; `report` gets the progress.

    Raises:
        UnknownRunError: There is no such recorded run.
        SyntheticRunsError: The database holds made-up runs already, or the recorded run has no trajectories.
    """
    refuse_more(database)
    with bulk_load(database) as load:
        with load.filling(()) as connection:
            template = require_run_key(connection, template_run_id)
            keys = _add_runs(connection, template, size)
            _make_stretch(connection, template, size.num_steps)
            copies = _plan(connection, template, keys, size)
        report(f"{size.num_runs:,} runs.")
        with load.filling([models.steps, models.metric_names]):
            _add_steps(connection, template, keys)
        report("Steps with metrics.")
        with load.filling([models.evaluations]):
            _add_evaluations(connection, template, keys)
        copy_trajectories(load, template, copies, size.num_steps, has_texts=size.has_texts)
        report("Trajectories.")
        with load.filling([models.trajectory_blocks]):
            make_blocks(connection, sorted({copy.run_key for copy in copies}))
        with load.filling(()):
            connection.exec_driver_sql("PRAGMA analysis_limit = 1000" if load.is_sqlite else "SELECT 1")
            connection.exec_driver_sql("ANALYZE")


def refuse_more(database: Database) -> None:
    """Raise SyntheticRunsError where the database holds made-up runs already."""
    with database.read() as connection:
        if find_run_key(connection, _run_id(1)) is not None:
            raise SyntheticRunsError("The database holds synthetic runs already; `exgrpo db rebuild` removes them.")


def _run_id(number: int) -> str:
    return f"{SYNTHETIC}-{number:05d}"


def _add_runs(connection: Connection, template: int, size: SyntheticSize) -> list[int]:
    """Add the runs, their attempts and tags, and return their keys."""
    runs = models.runs
    origin = connection.execute(runs.select().where(runs.c.run_key == template)).mappings().one()
    rows = [_run_row(origin, number, size.num_steps) for number in range(1, size.num_runs + 1)]
    connection.execute(insert(runs), rows)
    made = text("SELECT run_key FROM runs WHERE run_id LIKE :pattern ORDER BY run_id")
    keys = list(connection.scalars(made, {"pattern": f"{SYNTHETIC}-%"}))
    attempts = [
        {"run_key": key, "attempt": 1, **{name: row[name] for name in ("started_at", "ended_at", "status")}}
        for key, row in zip(keys, rows, strict=True)
    ]
    connection.execute(insert(models.attempts), attempts)
    connection.execute(insert(models.tags), [{"run_key": key, "tag": SYNTHETIC} for key in keys])
    return keys


def _run_row(origin: Any, number: int, num_steps: int) -> dict[str, Any]:  # noqa: ANN401 - a row of the driver
    status = _ENDS[number % len(_ENDS)]
    born = _FIRST_BIRTH + timedelta(minutes=37 * number)
    spec = json.loads(json.dumps(origin["spec"])) | {"num_steps": num_steps, "is_synthetic": True}
    if number % 3 == 0:
        spec["algorithm"] = spec.get("algorithm", {}) | {"experience_ratio": 0.0}
    share = _share_kept(number)
    summary = dict(origin["summary"])
    summary["pass_at_1_curve"] = [share * value for value in summary.get("pass_at_1_curve", [])]
    for name in ("last_pass_at_1", "last_avg_at_n"):
        summary[name] = share * summary[name] if summary.get(name) is not None else None
    return {
        "run_id": _run_id(number),
        "name": f"{SYNTHETIC} {number:05d}",
        "status": status,
        "status_reason": "" if status == "finished" else f"{SYNTHETIC}: made up",
        "spec": spec,
        "created_at": born,
        "started_at": born,
        "ended_at": born + timedelta(hours=3),
        "last_event_at": born + timedelta(hours=3),
        "attempt": 1,
        "step": num_steps,
        "summary": summary,
    }


def _share_kept(number: int) -> float:
    """Return the fraction of the recorded scores that a run reaches, 0.7 to 1."""
    return 1.0 - 0.3 * (number * 7919 % 1009) / 1009


def _make_stretch(connection: Connection, template: int, num_steps: int) -> None:
    """Make the temporary table that maps each step to a recorded step."""
    last = connection.scalar(
        text("SELECT max(step) FROM steps WHERE run_key = :run AND NOT is_superseded"), {"run": template}
    )
    if not last:
        raise SyntheticRunsError("The recorded run has no steps; name one that was trained.")
    connection.exec_driver_sql("CREATE TEMPORARY TABLE stretch (step INTEGER PRIMARY KEY, recorded INTEGER)")
    rows = [{"step": step, "recorded": 1 + (step - 1) * last // num_steps} for step in range(1, num_steps + 1)]
    connection.execute(text("INSERT INTO stretch VALUES (:step, :recorded)"), rows)
    connection.exec_driver_sql("CREATE TEMPORARY TABLE sentences (number INTEGER PRIMARY KEY, sentence TEXT)")
    made = [{"number": number, "sentence": sentence} for number, sentence in enumerate(sentences())]
    connection.execute(text("INSERT INTO sentences VALUES (:number, :sentence)"), made)


def _add_steps(connection: Connection, template: int, keys: Sequence[int]) -> None:
    """Add every run's steps, with metrics up to three tenths below the recorded ones, differently in each step."""
    run_keys = connection.scalars(text(_SYNTHETIC_KEYS), {"first": keys[0], "last": keys[-1]}).all()
    names = [{"names_key": key, "names": names} for key, names in list_names(connection, template).items()]
    insert_new(connection, models.metric_names, [row | {"run_key": key} for key in run_keys for row in names])
    rows = _stretched_steps(connection, template)
    blobs = [row["metric_values"] or b"" for row in rows]
    widths = [*map(len, blobs)]
    ends = np.cumsum(widths).tolist()
    values = np.frombuffer(b"".join(blobs), VALUE)
    steps = np.repeat([row["step"] for row in rows], np.array(widths) // VALUE.itemsize)
    for key in run_keys:
        share = 1 - 0.15 * ((key * 7919 % 1009) + (steps * 6151 + key * 3571) % 1013) / 1011.0
        packed = (values * share).tobytes()
        steps_of_run = [
            row | {"run_key": key, "metric_values": packed[end - width : end] or None}
            for row, width, end in zip(rows, widths, ends, strict=True)
        ]
        insert_new(connection, models.steps, steps_of_run)


def _stretched_steps(connection: Connection, template: int) -> list[dict[str, Any]]:
    """Return the rows of a made-up run's steps as they were recorded."""
    steps = models.steps
    query = select(steps).where(steps.c.run_key == template, ~steps.c.is_superseded)
    recorded = {row["step"]: dict(row) for row in connection.execute(query).mappings()}
    stretch = connection.execute(text("SELECT step, recorded FROM stretch ORDER BY step")).all()
    return [recorded[row.recorded] | {"step": row.step, "attempt": 1} for row in stretch if row.recorded in recorded]


def _add_evaluations(connection: Connection, template: int, keys: Sequence[int]) -> None:
    """Add every run's evaluations, the same questions for all."""
    span = {"template": template, "first": keys[0], "last": keys[-1]}
    table = models.evaluations
    values = {column.name: f"o.{column.name}" for column in table.columns} | {
        "run_key": "r.run_key",
        "attempt": "1",
        "step": "s.step",
        "avg_at_n": "o.avg_at_n * (1.0 - 0.3 * ((r.run_key * 7919) % 1009) / 1009.0)",
    }
    statement = (
        f"INSERT INTO {table.name} ({', '.join(values)}) SELECT {', '.join(values.values())}"
        f" FROM ({_SYNTHETIC_KEYS}) AS r CROSS JOIN {table.name} AS o"
        " JOIN (SELECT recorded, max(step) AS step FROM stretch GROUP BY recorded) AS s ON s.recorded = o.step"
        " WHERE o.run_key = :template AND NOT o.is_superseded"
    )
    connection.execute(text(statement), span)


def _plan(connection: Connection, template: int, keys: Sequence[int], size: SyntheticSize) -> list[Copy]:
    recorded = connection.execute(
        text(
            "SELECT count(*) AS num, max(step) AS last_step FROM trajectories"
            " WHERE run_key = :run AND NOT is_superseded"
        ),
        {"run": template},
    ).one()
    if not recorded.num:
        raise SyntheticRunsError("The recorded run has no trajectories; name one that was trained.")
    num_copies = max(1, round(size.num_trajectories / recorded.num))
    return plan_copies(keys, num_copies, max(1, -(-size.num_steps // recorded.last_step)))
