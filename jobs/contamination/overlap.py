"""Overlap of benchmark questions with training data: runs of words that both have."""

import re
from collections.abc import Iterable, Sequence

NUM_WORDS = 13
"""Words in a run. Source: Brown et al. 2020, Language Models are Few-Shot Learners, appendix C."""
_WORD = re.compile(r"\w+")


def overlap_shares(questions: Sequence[str], training_texts: Iterable[str]) -> list[float]:
    """Return for each question the share of its runs of 13 words that training texts have, in [0, 1].

    Case and punctuation do not count. A question of fewer words is one run, found where a training text equals it.
    """
    runs_of = [_runs(_words(question)) for question in questions]
    wanted = {run for runs in runs_of for run in runs}
    common: set[tuple[str, ...]] = set()
    for text in training_texts:
        common |= _runs(_words(text)) & wanted
    return [len(runs & common) / len(runs) if runs else 0.0 for runs in runs_of]


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def _runs(words: tuple[str, ...]) -> set[tuple[str, ...]]:
    if len(words) <= NUM_WORDS:
        return {words} if words else set()
    return {words[start : start + NUM_WORDS] for start in range(len(words) - NUM_WORDS + 1)}
