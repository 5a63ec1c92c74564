"""Scores of benchmarks."""

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, select

from db.connections.session import Database
from db.queries.run_methods import method_name
from db.rows.scores import BenchmarkScoreRow
from db.tables import models

_STARTED_FROM = re.compile(r"/model/([^/]+)/step-[^/]+/?$")
"""How the model folder ends of a run that started from a checkpoint: the id of that run, and its step."""


def list_scores(
    database: Database,
    *,
    run_id: str | None = None,
    source_run_id: str | None = None,
    scheme: str | None = None,
    limit: int | None = None,
) -> list[BenchmarkScoreRow]:
    """Return scores, newest evaluation first and benchmarks in the order in which they were finished.

    Those of archived evaluations are left out, unless one is asked for by its id.

    Args:
        database: Where to read.
        run_id: Only of this evaluation.
        source_run_id: Only of checkpoints of this training run.
        scheme: Only by this scheme: paper or training.
        limit: The largest number of rows.
    """
    runs, table = models.runs, models.benchmark_scores
    query = _score_query()
    query = query.where(runs.c.run_id == run_id) if run_id is not None else query.where(~runs.c.is_archived)
    if source_run_id is not None:
        query = query.where(table.c.source_run_id == source_run_id)
    if scheme is not None:
        query = query.where(table.c.scheme == scheme)
    query = query.order_by(runs.c.created_at.desc(), runs.c.run_id, table.c.at, table.c.scheme.desc()).limit(limit)
    with database.read() as connection:
        rows = connection.execute(query).mappings().all()
        specs = {row["source_run_id"]: row["source_spec"] for row in rows if row["source_spec"] is not None}
        backbones = {run_id: _first_backbone(connection, spec) for run_id, spec in specs.items()}
    return [_score_row(row, backbones.get(row["source_run_id"])) for row in rows]


def _score_query() -> Select[Any]:
    """Return the query for scores without their questions, of which there may be many thousand."""
    runs, table, source = models.runs, models.benchmark_scores, models.runs.alias("source")
    of_source = [source.c.name.label("source_name"), source.c.spec.label("source_spec")]
    columns = [table.c[name] for name in BenchmarkScoreRow.__dataclass_fields__ if name in table.c]
    of_run = [runs.c.run_id, runs.c.name.label("run_name"), runs.c.spec]
    return select(*of_run, *columns, *of_source).join(runs).outerjoin(source, source.c.run_id == table.c.source_run_id)


def _score_row(row: RowMapping, backbone: str | None) -> BenchmarkScoreRow:
    spec = row["source_spec"]
    fields = {name: row[name] for name in BenchmarkScoreRow.__dataclass_fields__ if name in row}
    fields["chosen_as"] = row["spec"].get("model", {}).get("chosen_as") or ""
    if backbone is None:
        return BenchmarkScoreRow(**fields, method="", backbone=row["model"])
    return BenchmarkScoreRow(**fields, method=method_name(spec), backbone=backbone)


def _first_backbone(connection: Connection, spec: Mapping[str, Any]) -> str:
    """Return where the first model came from: a hub name or a folder.

    Where a run on the way is not in the database, its checkpoint's folder is the answer.
    """
    source, seen = _model_source(spec), set()
    while (match := _STARTED_FROM.search(source)) is not None and match[1] not in seen:
        seen.add(match[1])
        parent = connection.scalar(select(models.runs.c.spec).where(models.runs.c.run_id == match[1]))
        if parent is None:
            break
        source = _model_source(parent)
    return source


def _model_source(spec: Mapping[str, Any]) -> str:
    return str(spec.get("model", {}).get("source", ""))
