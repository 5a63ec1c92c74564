"""The beginning of a text on one line, as lists show it."""

SNIPPET_CHARACTERS = 200


def shorten(text: str) -> str:
    """Return the text on one line, with an ellipsis where more than `SNIPPET_CHARACTERS` are cut."""
    line = " ".join(text.split())
    return line if len(line) <= SNIPPET_CHARACTERS else f"{line[:SNIPPET_CHARACTERS]}…"
