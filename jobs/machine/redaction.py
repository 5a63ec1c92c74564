"""The key that a server is shown, which it may say again in an answer that is kept."""

_SECRET_CHARS = 8
"""Shorter keys are words such as `x` and `EMPTY`, given to servers that ask for none, and parts of ordinary text."""


def without_key(text: str, key: str) -> str:
    """Return what a server said with the key taken out."""
    return text.replace(key, "[key]") if len(key) >= _SECRET_CHARS else text
