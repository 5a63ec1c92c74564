"""The queries of `exgrpo query` over HTTP, for programs: read-only JSON, the document that describes it, and files.

A file holds all trajectories that match, however many.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import chain
from typing import cast

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from app import requests, settings
from app.components.widgets import data_table
from app.queries.answers import UnavailableError, ask_outside_pages
from app.queries.runs import whole_trajectories
from db.rows.sort_order import SortOrder
from db.rows.trajectories import SnippetRow, TrajectoryFacets, TrajectorySortKey, extra_names, spread_extra
from exgrpo_core.errors import UserError

PATH = "/api"
_FILES = {f"{PATH}/trajectories.csv": "text/csv", f"{PATH}/trajectories.jsonl": "application/x-ndjson"}
PATHS = frozenset({*(f"{PATH}/{name}" for name in ("openapi.json", *requests.QUERIES)), *_FILES})

_STATUSES: tuple[tuple[type[UserError], int], ...] = (
    (UnavailableError, 503),
    (requests.NotFoundError, 404),
    (UserError, 400),
)


def routes() -> list[Route]:
    """Return the routes of the document, of files and of all queries."""
    files = [Route(path, _stream) for path in _FILES]
    return [Route(f"{PATH}/openapi.json", _describe), *files, Route(f"{PATH}/{{name}}", _answer)]


def _answer(request: Request) -> Response:
    """Answer with rows, or a sentence: 404 if nothing has this name, 400 if a value is wrong, 503 without database."""
    name, query = request.path_params["name"], request.query_params
    values = {key: query.getlist(key) for key in query}
    root = settings.current().runs_root
    try:
        return _json(ask_outside_pages(lambda database: requests.answer_query(name, values, database, root)))
    except UserError as error:
        return _refuse(error)


def _stream(request: Request) -> Response:
    """Answer with a file of all trajectories of a run that match the fields of `TrajectoryFacets`, in order `sort`."""
    path, query = request.url.path, request.query_params
    values = {key: query.getlist(key) for key in ("run_id", *query) if key != "sort"}
    try:
        where = cast("TrajectoryFacets", requests.read_facets(values, None, settings.current().runs_root))
        batches = whole_trajectories(where, SortOrder.read(query.get("sort", ""), TrajectorySortKey))
    except UserError as error:
        return _refuse(error)
    rows = _csv(batches) if path.endswith("csv") else _lines(batches)
    headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{path.rpartition("/")[2]}"'}
    return StreamingResponse(rows, headers=headers, media_type=_FILES[path])


def _csv(batches: Iterator[Sequence[SnippetRow]]) -> Iterator[str]:
    """Yield rows with a head; what else was recorded is in columns, as JSON where the first batch lacks the name."""
    names = [field.name for field in fields(SnippetRow)]
    first = next(batches, ())
    extra = extra_names({"extra": row.extra} for row in first)
    yield data_table.csv_lines([[*names, *(f"extra.{name}" for name in extra)]])
    for batch in chain([first], batches):
        plain = ({name: getattr(row, name) for name in names} for row in batch)
        yield data_table.csv_lines([[_cell(value) for value in row.values()] for row in spread_extra(plain, extra)])


def _cell(value: object) -> object:
    return to_json(value, inf_nan_mode="null").decode() if isinstance(value, dict) else value


def _lines(batches: Iterator[Sequence[SnippetRow]]) -> Iterator[bytes]:
    for batch in batches:
        yield b"".join(to_json(row, inf_nan_mode="null", fallback=str) + b"\n" for row in batch)


def _refuse(error: UserError) -> Response:
    return _json({"error": str(error)}, next(status for kind, status in _STATUSES if isinstance(error, kind)))


def _describe(_: Request) -> Response:
    return _json(requests.openapi_document(PATH, _FILES))


def _json(content: object, status: int = 200) -> Response:
    """Return JSON as `exgrpo query --json` prints it."""
    body = to_json(content, inf_nan_mode="null", fallback=str)
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")
