"""The OpenAPI document of the queries over HTTP."""

from typing import Any

from jobs.queries.calls import answer_schema, describe, values_model
from jobs.queries.table import QUERIES

_REFERENCE = "#/components/schemas/{model}"


def openapi_document(prefix: str) -> dict[str, Any]:
    """Return the document of all queries at `PREFIX/NAME`, each a GET with its values in the address."""
    schemas: dict[str, Any] = {}
    paths = {f"{prefix}/{name}": {"get": _operation(name, schemas)} for name in QUERIES}
    token = {"type": "http", "scheme": "bearer", "description": "The token of the link that `exgrpo up` prints."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ExGRPO Workbench", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": token}},
        "security": [{"token": []}],
    }


def _operation(name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return one operation; the types that it names are added to `schemas`."""
    values = values_model(QUERIES[name]).model_json_schema(ref_template=_REFERENCE)
    answer = answer_schema(QUERIES[name], _REFERENCE)
    schemas |= {**values.pop("$defs", {}), **answer.pop("$defs", {})}
    required = values.get("required", ())
    return {
        "operationId": name,
        "summary": describe(QUERIES[name]),
        "parameters": [
            {"name": key, "in": "query", "required": key in required, "schema": schema}
            for key, schema in values["properties"].items()
        ],
        "responses": {
            "200": {"description": "The rows.", "content": {"application/json": {"schema": answer}}},
            "400": {"description": "A value is wrong: `error` is one sentence."},
            "403": {"description": "The token is missing or wrong."},
            "404": {"description": "Nothing has the name or id that was asked for."},
        },
    }
