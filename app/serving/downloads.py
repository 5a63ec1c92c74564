"""Files of all trajectories that match, however many: what Export in the tab Trajectories downloads."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import chain
from typing import cast

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from exgrpo.app.components.widgets import data_table
from exgrpo.app.queries.answers import UnavailableError
from exgrpo.app.queries.runs import whole_trajectories
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.sort_order import SortOrder
from exgrpo.db.rows.trajectories import TrajectoryFacets, TrajectoryRow, TrajectorySortKey, extra_names, spread_extra
from exgrpo.jobs.queries import calls
from exgrpo_core.errors import UserError

_FILES = {"/download/trajectories.csv": "text/csv", "/download/trajectories.jsonl": "application/x-ndjson"}
PATHS = frozenset(_FILES)
_FACETS = {"trajectories": TrajectoryFacets}


def routes() -> list[Route]:
    """Return the routes of the files."""
    return [Route(path, _stream) for path in _FILES]


def _stream(request: Request) -> Response:
    """Answer with a file of all trajectories of a run that match the fields of `TrajectoryFacets`, in order `sort`."""
    path, query = request.url.path, request.query_params
    values = {"run_id": None, **query}
    values.pop("sort", None)
    try:
        where = cast("TrajectoryFacets", calls.call(_FACETS, "trajectories", values, None, runs_root()))
        batches = whole_trajectories(where, SortOrder.read(query.get("sort", ""), TrajectorySortKey))
    except UserError as error:
        return PlainTextResponse(f"{error}\n", 503 if isinstance(error, UnavailableError) else 400)
    rows = _csv(batches) if path.endswith("csv") else _lines(batches)
    headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{path.rpartition("/")[2]}"'}
    return StreamingResponse(rows, headers=headers, media_type=_FILES[path])


def _csv(batches: Iterator[Sequence[TrajectoryRow]]) -> Iterator[str]:
    """Yield rows with a head; what else was recorded is in columns, as JSON where the first batch lacks the name."""
    names = [field.name for field in fields(TrajectoryRow)]
    first = next(batches, ())
    extra = extra_names({"extra": row.extra} for row in first)
    yield data_table.csv_lines([[*names, *(f"extra.{name}" for name in extra)]])
    for batch in chain([first], batches):
        plain = ({name: getattr(row, name) for name in names} for row in batch)
        yield data_table.csv_lines([[_cell(value) for value in row.values()] for row in spread_extra(plain, extra)])


def _cell(value: object) -> object:
    return to_json(value, inf_nan_mode="null").decode() if isinstance(value, dict | list) else value


def _lines(batches: Iterator[Sequence[TrajectoryRow]]) -> Iterator[bytes]:
    for batch in batches:
        yield b"".join(to_json(row, inf_nan_mode="null", fallback=str) + b"\n" for row in batch)
