"""What stands in for a specification that cannot be read: the kind of the job and K, as far as records have them."""

from collections.abc import Mapping
from typing import Any

UNREADABLE_KIND = "unreadable"
"""The kind of a job that recorded nothing that says its kind."""
_MARK = "is_unreadable"
UNREADABLE_SPEC: Mapping[str, Any] = {"kind": UNREADABLE_KIND, _MARK: True}


def is_unreadable(spec: Mapping[str, Any]) -> bool:
    """Whether this stands in for a specification, so that settings are unknown."""
    return spec.get(_MARK) is not None
