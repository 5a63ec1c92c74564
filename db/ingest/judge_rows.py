"""From a judge's events to rows."""

from collections.abc import Mapping
from typing import Any

from db.tables.json_text import storable_text

_MAX_SOURCE_CHARS = 200
_MAX_COUNT = 2**31 - 1


def judge_vote_row(run_key: int, vote: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one vote.

    Raises:
        ValueError: Its issues are no texts.
    """
    trajectory_id = vote["trajectory_id"]
    label = vote["label"]
    return {
        "run_key": run_key,
        "item_id": storable_text(str(vote["item_id"])),
        "vote": int(vote["vote"]),
        "source": str(vote["source"])[:_MAX_SOURCE_CHARS],
        "source_attempt": vote["source_attempt"],
        "trajectory_id": None if trajectory_id is None else int(trajectory_id),
        "outcome": str(vote["outcome"]),
        "reason": str(vote["reason"]),
        "issues": _texts(vote["issues"]),
        "label": None if label is None else bool(label),
        "judge": str(vote["judge"]),
        "prompt": str(vote["prompt"]),
        "num_requests": min(int(vote["num_requests"]), _MAX_COUNT),
        "num_tokens": min(int(vote["num_tokens"]), _MAX_COUNT),
        "answer": storable_text(str(vote["answer"])),
    }


def _texts(issues: object) -> list[str]:
    if not isinstance(issues, list | tuple) or not all(isinstance(issue, str) for issue in issues):
        raise ValueError("issues: expected a list of texts.")
    return list(issues)
