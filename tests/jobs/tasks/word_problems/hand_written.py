"""Three hundred chains of thought written by hand, with labels from their stories, and how the oracle does on them.

The oracle was built with the chains of stories with odd numbers only; those of even numbers were kept apart.

Labels: valid, if the box is right and every step is true and follows from the story or from earlier steps, at most one
operation at a time done in the head; invalid with the first wrong step (where two readings are fair, a part of the text
that holds both); unreadable, if there is no step at all.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.tasks.word_problems.oracle import ChainVerdict, judge_response
from jobs.tasks.word_problems.problem import StoryProblem

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class HandWrittenChain:
    """One line of the file; `first_wrong_step` is a part of the chain's text, "" unless it is invalid."""

    name: str
    problem: StoryProblem
    chain: str
    label: ChainVerdict
    first_wrong_step: str


def read_half(is_kept_apart: bool) -> list[HandWrittenChain]:
    """Return the 150 chains that the oracle was built with, or those that were kept apart."""
    problems = {
        row["story"]: StoryProblem.read(row["text"], row["numbers"], row["solution"], row.get("also", ()))
        for row in _rows("hand_written_stories.jsonl")
    }
    return [
        HandWrittenChain(
            row["id"], problems[row["story"]], row["chain"], ChainVerdict(row["label"]), row.get("first_wrong_step", "")
        )
        for row in _rows("hand_written_chains.jsonl")
        if (row["story"] % 2 == 0) == is_kept_apart
    ]


def precision_and_recall(chains: list[HandWrittenChain], verdict: ChainVerdict) -> tuple[float, float]:
    """Return how many of the chains that the oracle gives this verdict have that label, and the other way round."""
    pairs = [(judge_response(item.problem, item.chain).verdict, item.label) for item in chains]
    num_right = sum(pair == (verdict, verdict) for pair in pairs)
    return num_right / sum(given == verdict for given, _ in pairs), num_right / sum(
        label == verdict for _, label in pairs
    )


def share_of_first_steps(chains: list[HandWrittenChain]) -> float:
    """Return the share of the invalid chains called invalid whose first wrong step is the labelled one."""
    hits = []
    for item in chains:
        fault = judge_response(item.problem, item.chain).first_fault
        if fault is not None and item.label is ChainVerdict.INVALID:
            start = item.chain.index(item.first_wrong_step)
            hits.append(fault.start < start + len(item.first_wrong_step) and start < fault.end)
    return sum(hits) / len(hits)


def _rows(name: str) -> Iterator[dict[str, Any]]:
    with (FOLDER / name).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
