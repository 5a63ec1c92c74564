"""Files of questions, as users bring them."""

import json
from collections.abc import Iterable
from pathlib import Path


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verl_row(question: str, answer: object = "4", source: str = "mine", system: str = "", **fields: object) -> dict:
    """Return a row in verl's layout."""
    prompt = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": question}]
    return {"data_source": source, "prompt": prompt, "reward_model": {"ground_truth": answer}} | fields
