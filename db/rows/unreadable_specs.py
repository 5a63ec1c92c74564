"""The placeholder of a specification that cannot be read: the job's kind and K, as far as they were recorded."""

from collections.abc import Mapping
from typing import Any

UNREADABLE_KIND = "unreadable"
"""The kind of a job that recorded nothing that says its kind."""
_MARK = "is_unreadable"
UNREADABLE_SPEC: Mapping[str, Any] = {"kind": UNREADABLE_KIND, _MARK: True}


def is_unreadable(spec: Mapping[str, Any]) -> bool:
    """Whether this is the placeholder, so that settings are unknown."""
    # Databases of older versions have the kind alone.
    return spec.get(_MARK) is not None or spec.get("kind") == UNREADABLE_KIND
