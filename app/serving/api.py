"""The queries of `exgrpo query` over HTTP, for programs: read-only JSON, and the document that describes it."""

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app import requests, settings
from app.queries.answers import UnavailableError, ask_outside_pages
from exgrpo_core.errors import UserError

PATH = "/api"
PATHS = frozenset(f"{PATH}/{name}" for name in ("openapi.json", *requests.QUERIES))

_STATUSES: tuple[tuple[type[UserError], int], ...] = (
    (UnavailableError, 503),
    (requests.NotFoundError, 404),
    (UserError, 400),
)


def routes() -> list[Route]:
    """Return the routes of the document and of all queries."""
    return [Route(f"{PATH}/openapi.json", _describe), Route(f"{PATH}/{{name}}", _answer)]


def _answer(request: Request) -> Response:
    """Answer with rows, or a sentence: 404 if nothing has this name, 400 if a value is wrong, 503 without database."""
    name, query = request.path_params["name"], request.query_params
    values = {key: query.getlist(key) for key in query}
    root = settings.current().runs_root
    try:
        return _json(ask_outside_pages(lambda database: requests.answer_query(name, values, database, root)))
    except UserError as error:
        return _json({"error": str(error)}, next(status for kind, status in _STATUSES if isinstance(error, kind)))


def _describe(_: Request) -> Response:
    return _json(requests.openapi_document(PATH))


def _json(content: object, status: int = 200) -> Response:
    """Return JSON as `exgrpo query --json` prints it."""
    body = to_json(content, inf_nan_mode="null", fallback=str)
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")
