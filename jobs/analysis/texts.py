"""Reading texts to look for code in."""

import json
from pathlib import Path

from jobs.runs.control import TrainingError


def read_texts(path: Path, field: str) -> list[str]:
    """Return the texts of a file: that field of each JSON line, or the whole of any other file as one text.

    Raises:
        TrainingError: A line is no JSON object with such a field.
    """
    content = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix not in {".jsonl", ".ndjson"}:
        return [content]
    texts = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[field]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise TrainingError(f"{path}, line {number}: expected a JSON object with text in {field!r}; see --field.")
        texts.append(text)
    return texts
