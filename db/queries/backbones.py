"""The model that a run's training began with, through the runs whose checkpoints it started from."""

import re
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from db.tables import models

_STARTED_FROM = re.compile(r"/model/([^/]+)/step-[^/]+/?$")
"""How the model folder ends of a run that started from a checkpoint: the id of that run, and its step."""


def first_backbone(connection: Connection, spec: Mapping[str, Any]) -> str:
    """Return where the first model came from: a hub name or a folder.

    Where a run on the way is not in the database, its checkpoint's folder is the answer.
    """
    source, seen = _source(spec), set()
    while (match := _STARTED_FROM.search(source)) is not None and match[1] not in seen:
        seen.add(match[1])
        parent = connection.scalar(select(models.runs.c.spec).where(models.runs.c.run_id == match[1]))
        if parent is None:
            break
        source = _source(parent)
    return source


def _source(spec: Mapping[str, Any]) -> str:
    return str(spec.get("model", {}).get("source", ""))
