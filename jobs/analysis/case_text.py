"""Snowball cases as text for a paper or a program: Markdown in the paper's layout, or JSON."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict

from db.rows.chains_of_thought import CaseResponse, SnowballCase

_VERDICTS = {True: "valid", False: "invalid", None: "not judged"}
_TILDES = re.compile("~+")


def cases_as_json(name: str, cases: Sequence[SnowballCase]) -> str:
    """Return a set of cases as one JSON object."""
    return json.dumps({"case_set": name, "cases": [asdict(case) for case in cases]}, indent=2, ensure_ascii=False)


def cases_as_markdown(name: str, cases: Sequence[SnowballCase]) -> str:
    """Return a set of cases as Markdown: question, truth, low- and high-entropy response; texts are not changed."""
    parts = [f"# Snowball cases: {' '.join(name.split())}"]
    for number, case in enumerate(cases, start=1):
        parts += [
            f"## Case {number}",
            f"Run {case.run_id}, {case.steps}, question {case.question_index}.",
            f"**Question**\n\n{_fenced(case.question)}",
            f"**Ground truth**\n\n{_fenced(case.truth)}",
            _response("low", case.low),
            _response("high", case.high),
        ]
    return "\n\n".join(parts) + "\n"


def _response(end: str, response: CaseResponse) -> str:
    code = {True: ", with code", False: ", without code", None: ""}[response.has_code]
    return (
        f"**Response of {end} entropy**: {response.entropy:.4f} nats per token, chain of thought "
        f"{_VERDICTS[response.is_valid]}{code}, trajectory {response.trajectory_id}\n\n{_fenced(response.text)}"
    )


def _fenced(text: str) -> str:
    fence = "~" * max(3, *(len(run) + 1 for run in _TILDES.findall(text)), 3)
    return f"{fence}\n{text}\n{fence}"
