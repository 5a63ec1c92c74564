"""Removing a server's API key from its answers, which are stored."""

_SECRET_CHARS = 8
"""Shorter keys are placeholders such as `x` and `EMPTY`, which also occur in ordinary text."""


def without_key(text: str, key: str) -> str:
    """Return a server's text with the key replaced."""
    return text.replace(key, "[key]") if len(key) >= _SECRET_CHARS else text
