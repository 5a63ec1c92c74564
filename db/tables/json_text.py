"""JSON that SQLite and PostgreSQL both accept, whatever a run recorded."""

import json
import math
import re
from typing import Any

_NUL = "\\u0000"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def dump_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as JSON text; values that JSON or PostgreSQL cannot store are replaced.

    NaN and infinities become the strings NaN, Infinity and -Infinity; NUL and halves of surrogate pairs become the
    replacement character.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:
        return json.dumps(_storable(value), ensure_ascii=False)
    return json.dumps(_storable(value), ensure_ascii=False) if _NUL in text else text


def storable_text(text: str) -> str:
    """Return the text with the replacement character for what PostgreSQL cannot store."""
    if "\x00" not in text and text.isascii():  # most texts, for which the pattern is far slower
        return text
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _storable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {storable_text(key) if isinstance(key, str) else key: _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    return value
