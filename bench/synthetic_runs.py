"""Many made-up runs out of one recorded run, for trying pages and measuring them at scale.

Metrics follow the recorded run's, stretched over the requested number of steps and varied from run to run. Trajectories
are copies of the recorded ones, one after the other, each with other questions: buckets, selections, replays and
lineages stay consistent as they were recorded. Made-up sentences follow their texts. Equal arguments give equal rows.

    python -m bench.synthetic_runs --runs 1000 --runs-root runs
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from sqlalchemy import Connection, insert, text

from bench.synthetic_trajectories import Copy, bulk_load, copy_trajectories, plan_copies, sentences
from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import Database, DatabaseError
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.runs import list_runs
from exgrpo.db.tables import models
from exgrpo.db.tables.shared_reads import find_run_key, require_run_key
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.cli.following import POLL_SECONDS, RunFollower
from exgrpo.jobs.cli.options import DEFAULT_RUNS_ROOT, DatabaseUrl, RunsRoot, print_status
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.runs.lookup import find_run_id
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core.recording.run_status import RunStatus

SYNTHETIC = "synthetic"
"""Tag of such runs, and the start of their names."""
TEMPLATE_PRESET = "chains-exgrpo"
TEMPLATE_STEPS = 60
_MIN_STEPS = 20
"""A shorter run has hardly replayed anything."""
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
        with load.filling([models.steps, models.metrics]):
            _add_steps(connection, template, keys)
        report("Steps with metrics.")
        with load.filling([models.evaluations]):
            _add_evaluations(connection, template, keys)
        copy_trajectories(load, template, copies, size.num_steps, has_texts=size.has_texts)
        report("Trajectories.")
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
    last = connection.scalar(text("SELECT max(step) FROM steps WHERE run_key = :run"), {"run": template})
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
    span = {"template": template, "first": keys[0], "last": keys[-1]}
    share = "(1 - 0.15 * ((r.run_key * 7919 % 1009) + (s.step * 6151 + r.run_key * 3571) % 1013) / 1011.0)"
    for table, value in ((models.steps, {}), (models.metrics, {"value": f"o.value * {share}"})):
        values = {column.name: f"o.{column.name}" for column in table.columns}
        values |= {"run_key": "r.run_key", "attempt": "1", "step": "s.step", **value}
        statement = (
            f"INSERT INTO {table.name} ({', '.join(values)}) SELECT {', '.join(values.values())}"
            f" FROM ({_SYNTHETIC_KEYS}) AS r CROSS JOIN stretch AS s JOIN {table.name} AS o ON o.step = s.recorded"
            " WHERE o.run_key = :template"
        )
        connection.execute(text(statement), span)


def _add_evaluations(connection: Connection, template: int, keys: Sequence[int]) -> None:
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
        " WHERE o.run_key = :template"
    )
    connection.execute(text(statement), span)


def _plan(connection: Connection, template: int, keys: Sequence[int], size: SyntheticSize) -> list[Copy]:
    recorded = connection.execute(
        text("SELECT count(*) AS num, max(step) AS last_step FROM trajectories WHERE run_key = :run"),
        {"run": template},
    ).one()
    if not recorded.num:
        raise SyntheticRunsError("The recorded run has no trajectories; name one that was trained.")
    num_copies = max(1, round(size.num_trajectories / recorded.num))
    return plan_copies(keys, num_copies, max(1, -(-size.num_steps // recorded.last_step)))


def add_made_up_runs(
    runs_root: Path,
    database_url: str | None,
    size: SyntheticSize,
    run_id: str | None,
    print_status: Callable[[str], None],
) -> None:
    """Add made-up runs to the database; without `run_id` from the newest suitable run, trained if there is none.

    Raises:
        SyntheticRunsError: The database holds made-up runs already, the recorded run has no trajectories, or the
            training of the run to start from failed.
    """
    database = open_database(database_url, runs_root)
    try:
        refuse_more(database)
        template = run_id or recorded_run(runs_root, database_url, print_status)
        ingest_all(runs_root, database_url)
        add_synthetic_runs(database, template, size, print_status)
    finally:
        database.close()


def recorded_run(runs_root: Path, database_url: str | None, print_status: Callable[[str], None]) -> str:
    """Return the newest run that made-up runs can be derived from, trained now if there is none.

    Raises:
        SyntheticRunsError: Its training failed.
    """
    ingest_all(runs_root, database_url)
    database = open_database(database_url, runs_root)
    try:
        run_id = _suitable_run(database, runs_root)
    finally:
        database.close()
    run_id = run_id or _train(runs_root, database_url, print_status)
    print_status(f"Recorded run: {run_id}.")
    return run_id


def _suitable_run(database: Database, runs_root: Path) -> str | None:
    """Return the newest finished run of ExGRPO, None if there is none."""
    recorded = {run.run_id for run in list_run_directories(runs_root)}
    for row in list_runs(database, RunFilter(statuses=("finished",), is_archived=None), limit=None):
        if row.run_id in recorded and row.method == "ExGRPO" and row.step >= _MIN_STEPS:
            return row.run_id
    return None


def _train(runs_root: Path, database_url: str | None, print_status: Callable[[str], None]) -> str:
    print_status(f"No suitable recorded run; training {TEMPLATE_STEPS} steps of {TEMPLATE_PRESET}.")
    spec = load_preset(TEMPLATE_PRESET).model_copy(update={"num_steps": TEMPLATE_STEPS})
    run_id = queue_job(runs_root, spec)
    follower = RunFollower(runs_root, database_url, run_id)
    try:
        while not (state := follower.poll()).is_ended:
            time.sleep(POLL_SECONDS)
        follower.finish(state)
    finally:
        follower.close()
    if state.status is not RunStatus.FINISHED:
        raise SyntheticRunsError(f"Run {run_id}, which made-up runs start from, {state.status}: {state.reason}")
    return run_id


def main(
    num_runs: Annotated[int, typer.Option("--runs", min=1, help="Runs to make.")] = 100,
    num_steps: Annotated[
        int, typer.Option("--steps", min=1, help="Steps of each run, with about 47 metric points a step.")
    ] = 500,
    num_trajectories: Annotated[
        int, typer.Option("--trajectories", min=1, help="Trajectories in all, about; most in the first run.")
    ] = 100_000,
    run: Annotated[
        str | None, typer.Option("--from", metavar="RUN", help="Recorded run to start from; else the newest.")
    ] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Add made-up runs, marked as synthetic, to the database, to try pages at scale.

    They are derived from one recorded run: the newest ExGRPO run of the runs root, or a short one of the built-in task
    that is trained first. Equal options and an equal recorded run give equal rows. They are in the database only,
    without run folders: `exgrpo db rebuild` removes them.
    """
    template = None if run is None else find_run_id(runs_root, run)
    add_made_up_runs(
        runs_root, database_url, SyntheticSize(num_runs, num_steps, num_trajectories), template, print_status
    )
    sys.stdout.write(f"{num_runs:,} synthetic runs.\n")


if __name__ == "__main__":
    typer.run(main)
