"""The beginning of a text on one line, as lists show it."""

SNIPPET_CHARACTERS = 200


def shorten(text: str, most: int = SNIPPET_CHARACTERS) -> str:
    """Return the text on one line, with an ellipsis where more than `most` characters are cut."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"
