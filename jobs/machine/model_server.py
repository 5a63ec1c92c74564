"""What clients of model servers share: answers worth another try, and answers without the key."""

RETRIABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses of HTTP after which another try may succeed."""
_SECRET_CHARS = 8
"""Shorter keys are placeholders such as `x` and `EMPTY`, which also occur in ordinary text."""


def without_key(text: str, key: str) -> str:
    """Return a server's text with the API key replaced, since answers are stored."""
    return text.replace(key, "[key]") if len(key) >= _SECRET_CHARS else text
