"""An evaluation's folder read back: what a model answered to one question."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exgrpo_core.bounded_json import open_plain, parse_json

FOLDER = "evaluation"
"""Folder of the answers in an evaluation's run directory."""
_BENCHMARK = re.compile(r"\w+")
PLAN_FILE = "plan.json"
"""How many questions there are, beside the answers."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One sampled answer with its outcome by every scheme."""

    text: str
    num_tokens: int
    is_truncated: bool
    outcomes: dict[str, str]


@dataclass(frozen=True, slots=True)
class RecordedQuestion:
    """One question with its gold answer, as asked, and all sampled answers; texts are empty in logs without them."""

    text: str
    gold: str
    answers: tuple[RecordedAnswer, ...]


def find_answers(run_path: Path, benchmark: str, question_id: str) -> RecordedQuestion | None:
    """Return the answers to a question, None where it was not finished; of several attempts the newest counts."""
    newest = None
    if _BENCHMARK.fullmatch(benchmark) is None:
        return None
    for path in sorted((run_path / FOLDER).glob(f"{benchmark}-*.jsonl")):
        for record in _records_of(path, question_id):
            answers = tuple(_answer(*item) for item in zip(record["samples"], record["outcomes"], strict=True))
            newest = RecordedQuestion(record.get("question", ""), record.get("gold", ""), answers)
    return newest


def _records_of(path: Path, question_id: str) -> Iterator[dict[str, Any]]:
    """Yield the lines about a question; others, of which there may be many thousand, are not parsed."""
    marker = json.dumps(question_id).encode()
    with open_plain(path) as file:
        for line in file:
            if marker in line and line.endswith(b"}\n"):
                record = parse_json(line)
                if record["question_id"] == question_id:
                    yield record


def _answer(sample: dict[str, Any], outcomes: list[str]) -> RecordedAnswer:
    names = ("paper", "training", "corrected")
    return RecordedAnswer(
        sample["text"], sample["num_tokens"], sample["is_truncated"], dict(zip(names, outcomes, strict=True))
    )
