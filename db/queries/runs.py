"""The list of runs, and one run with its attempts and checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, Select, exists, func, select, text

from exgrpo.db.connections.session import Database, url_without_password
from exgrpo.db.ingest.run_summary import is_shown
from exgrpo.db.queries.metrics import list_evaluations
from exgrpo.db.queries.run_filter import NEWEST_FIRST, RunFilter, RunOrder, comes_after, conditions, sort_columns
from exgrpo.db.queries.run_values import facets
from exgrpo.db.rows.runs import AttemptRow, Badge, CheckpointRow, RunRow
from exgrpo.db.rows.spec_fields import is_recorded, is_unreadable
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo.db.tables.shared_reads import require_run_key
from exgrpo_core.faults import FaultKind, describe_fault, fault_of
from exgrpo_core.recording.run_status import LIVE, RunStatus

STALLED_AFTER = timedelta(seconds=60)
"""A running run whose last event is older than this, and than `STALLED_STEPS` of its steps, gets the badge stalled."""
STALLED_STEPS = 5


class RunName(NamedTuple):
    """A run as a choice offers it."""

    run_id: str
    name: str
    step: int
    """Training steps done; 0 before the first."""


def list_runs(
    database: Database,
    where: RunFilter | None = None,
    *,
    order: RunOrder = NEWEST_FIRST,
    after: str | None = None,
    limit: int | None = 200,
) -> list[RunRow]:
    """Return a page of runs; `after` is the id of the last page's last run, no `limit` gives all."""
    with database.read() as connection:
        query = _rows().where(*conditions(connection, where or RunFilter()))
        query = query.order_by(*sort_columns(connection, order)).limit(limit)
        if after is not None:
            query = query.where(comes_after(connection, order, after))
        rows = connection.execute(query).mappings().all()
        tags = _tags(connection, [row["run_key"] for row in rows])
    return [_run_row(row, tags.get(row["run_key"], ())) for row in rows]


def list_run_names(
    database: Database, where: RunFilter, *, has_steps: bool = False, limit: int | None = 100
) -> list[RunName]:
    """Return the runs that fit, newest first, with no limit all; with `has_steps` only those that have done a step."""
    runs = models.runs
    query = select(runs.c.run_id, runs.c.name, runs.c.step)
    if has_steps:
        query = query.where(runs.c.step > 0)
    query = query.order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(limit)
    with database.read() as connection:
        query = query.where(*conditions(connection, where))
        return [RunName(*row) for row in connection.execute(query)]


def get_run(database: Database, run_id: str) -> RunRow | None:
    """Return one run, archived or not, or None if there is none of this id."""
    if "\0" in run_id:
        return None
    with database.read() as connection:
        row = connection.execute(_rows().where(models.runs.c.run_id == run_id)).mappings().first()
        if row is None:
            return None
        tags = _tags(connection, [row["run_key"]])
    return _run_row(row, tags.get(row["run_key"], ()))


def list_ends(database: Database) -> dict[str, tuple[str, str, int, datetime | None]]:
    """Return status, reason, attempt and end of each run that is shown whole: it has ended, or no attempt began."""
    runs, attempts = models.runs, models.attempts
    num_ended = (
        select(func.count())
        .where(attempts.c.run_key == runs.c.run_key, attempts.c.status.not_in(LIVE))
        .scalar_subquery()
    )
    has_ended = runs.c.status.not_in(LIVE) & runs.c.ended_at.is_not(None)
    is_still = has_ended | ((runs.c.status == RunStatus.QUEUED) & (runs.c.attempt == 0))
    query = select(runs.c.run_id, runs.c.status, runs.c.status_reason, runs.c.attempt, runs.c.ended_at, runs.c.summary)
    with database.read() as connection:
        rows = connection.execute(query.where(is_still, num_ended == runs.c.attempt))
        return {row.run_id: row[1:5] for row in rows if is_shown(row.summary)}


def run_spec(database: Database, run_id: str) -> dict[str, Any]:
    """Return the specification that a run was started with."""
    with database.read() as connection:
        run_key = require_run_key(connection, run_id)
        spec: dict[str, Any] = connection.scalars(
            select(models.runs.c.spec).where(models.runs.c.run_key == run_key)
        ).one()
    return spec


def list_attempts(database: Database, run_id: str) -> list[AttemptRow]:
    """Return a run's attempts, first to last."""
    attempts, runs = models.attempts, models.runs
    columns = (attempts.c[name] for name in AttemptRow.__dataclass_fields__)
    query = select(*columns).join(runs).where(runs.c.run_id == run_id).order_by(attempts.c.attempt)
    return [AttemptRow(*row) for row in database.rows(query)]


def list_checkpoints(database: Database, run_id: str) -> list[CheckpointRow]:
    """Return the checkpoints that are still in a run's folder, and why each is kept, oldest first."""
    checkpoints, runs = models.checkpoints, models.runs
    query = (
        select(checkpoints, runs.c.spec)
        .join(runs)
        .where(runs.c.run_id == run_id)
        .order_by(checkpoints.c.step, checkpoints.c.attempt)
    )
    with database.read() as connection:
        rows = connection.execute(query).mappings().all()
    written = {row["step"]: CheckpointRow(row["step"], row["path"], row["num_bytes"], row["at"]) for row in rows}
    spec = rows[0]["spec"] if rows else {}
    evaluations = list_evaluations(database, run_id) if spec.get("keeps_best_checkpoint") else []
    scores = {row.step: row.avg_at_n for row in evaluations if row.question_set == "held_out"}
    return _kept(list(written.values()), spec.get("num_checkpoints_kept", len(written)), scores)


def _kept(written: Sequence[CheckpointRow], num_newest: int, scores: Mapping[int, float | None]) -> list[CheckpointRow]:
    """Return what is left of checkpoints if after each one all go but the newest and, of those left, the best."""
    kept: list[CheckpointRow] = []
    for checkpoint in written:
        kept.append(checkpoint)
        scored = [row for row in kept if scores.get(row.step) is not None]
        best = max(scored, key=lambda row: scores[row.step] or 0.0, default=None)
        reasons: dict[str, list[CheckpointRow | None]] = {
            "newest": [*kept[-num_newest:]],
            "best held-out score": [best],
        }
        named = [(row, ", ".join(name for name, rows in reasons.items() if row in rows)) for row in kept]
        kept = [replace(row, kept_as=name) for row, name in named if name]
    return kept


def list_notes(database: Database, run_id: str) -> list[tuple[datetime, str]]:
    """Return the notes on a run, oldest first."""
    notes, runs = models.notes, models.runs
    query = select(notes.c.at, notes.c.text).join(runs).where(runs.c.run_id == run_id).order_by(notes.c.at)
    return [(at, text) for at, text in database.rows(query)]


def count_runs(database: Database, where: RunFilter | None = None) -> dict[str, int]:
    """Return how many runs are in each state."""
    runs = models.runs
    query = select(runs.c.status, func.count()).group_by(runs.c.status)
    with database.read() as connection:
        query = query.where(*conditions(connection, where or RunFilter()))
        return {row[0]: row[1] for row in connection.execute(query)}


def has_buffers(database: Database) -> bool:
    """Whether any run recorded its replay buffer, as runs of other programs do not."""
    with database.read() as connection:
        return bool(connection.scalar(select(exists().select_from(models.bucket_counts))))


def _tags(connection: Connection, run_keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
    tags = models.tags
    query = select(tags).where(one_of(tags.c.run_key, run_keys)).order_by(tags.c.tag)
    tags_of_run: dict[int, tuple[str, ...]] = {}
    for run_key, tag in connection.execute(query):
        tags_of_run[run_key] = (*tags_of_run.get(run_key, ()), tag)
    return tags_of_run


def _dataset(spec: Mapping[str, Any]) -> str:
    benchmarks = ", ".join(choice["name"] for choice in spec.get("benchmarks", ()))
    return benchmarks or str(spec.get("config" if is_recorded(spec) else "data", {}).get("source", ""))


def _rows() -> Select[Any]:
    """Return the query for runs with their method and kind, as pages show it: a recorded run is one of training."""
    return select(models.runs, *(facets()[name].label(name) for name in ("method", "kind")))


_OF_NO_IMPORT = ("started_at", "ended_at")
"""The time of an import is not that of the run."""
_LEFT_OUT = frozenset({FaultKind.NOT_RECORDED, FaultKind.NO_TRAJECTORY})
_NO_DAMAGE = _LEFT_OUT | {FaultKind.NOT_SHOWN}


def _run_row(row: RowMapping, tags: tuple[str, ...]) -> RunRow:
    spec, summary = row["spec"], row["summary"]
    is_import = is_recorded(spec) and "format" in spec.get("config", {})
    faults = [fault_of(record) for record in summary.get("faults", ())]
    known: dict[str, Any] = {name: row[name] for name in RunRow.__dataclass_fields__ if name in row}
    return RunRow(
        **known | (dict.fromkeys(_OF_NO_IMPORT) if is_import else {}),
        model=spec.get("model", {}).get("source", ""),
        engine=spec.get("engine", ""),
        dataset=_dataset(spec),
        preset=spec.get("preset"),
        num_steps=spec.get("num_steps", 0),
        token_budget=spec.get("max_generated_tokens"),
        generated_tokens=_float(summary.get("generated_tokens")),
        seconds_per_step=_float(summary.get("seconds_per_step")),
        last_pass_at_1=_float(summary.get("last_pass_at_1")),
        last_avg_at_n=_float(summary.get("last_avg_at_n")),
        pass_at_1_curve=tuple(map(float, summary.get("pass_at_1_curve", ()))),
        health=_health(row),
        tags=tags,
        is_synthetic=spec.get("is_synthetic", False),
        is_recorded=is_recorded(spec),
        is_imported=is_import,
        has_settings=not is_unreadable(spec),
        faults=tuple(describe_fault(fault) for fault in faults if fault.kind not in _NO_DAMAGE),
        left_out=tuple(describe_fault(fault) for fault in faults if fault.kind in _LEFT_OUT),
        not_shown="".join(describe_fault(fault) for fault in faults if fault.kind is FaultKind.NOT_SHOWN),
    )


def _health(row: RowMapping) -> tuple[Badge, ...]:
    kinds = {record["kind"] for record in row["summary"].get("faults", ())}
    of_files: set[Badge] = {
        "not_shown" if kind == FaultKind.NOT_SHOWN else "not_recorded" if kind in _LEFT_OUT else "damaged"
        for kind in kinds
    }
    badges: tuple[Badge, ...] = (*row["summary"].get("health", ()), *sorted(of_files))
    last = row["last_event_at"]
    if row["kind"] != "train" or row["status"] != RunStatus.RUNNING or last is None:
        return badges
    limit_seconds = max(STALLED_AFTER.total_seconds(), STALLED_STEPS * (row["summary"].get("seconds_per_step") or 0.0))
    return (*badges, "stalled") if (datetime.now(UTC) - last).total_seconds() > limit_seconds else badges


def _float(value: float | None) -> float | None:
    """Return a number as a float; PostgreSQL returns large whole JSON numbers as int."""
    return None if value is None else float(value)


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """One database; `url` contains no password."""

    kind: str
    url: str
    num_bytes: int
    num_runs: int


def database_facts(database: Database) -> DatabaseFacts:
    """Return the facts about a database."""
    size = (
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        if database.is_sqlite
        else "SELECT pg_database_size(current_database())"
    )
    with database.read() as connection:
        num_bytes = int(connection.scalar(text(size)) or 0)
    return DatabaseFacts(
        kind="SQLite" if database.is_sqlite else "PostgreSQL",
        url=url_without_password(database.engine.url),
        num_bytes=num_bytes,
        num_runs=sum(count_runs(database).values()),
    )
