"""Two probes of a model: does it complete half a question, and does it know the numbers of a question?

Both compare a question with versions of it that have other numbers: what a model knows of a benchmark's phrasing counts
for both, and only having seen the question itself counts for one. A model that was trained on answers alone is not
detected. Source: completion of half questions as in Wu et al. 2025, Reasoning or Memorization?
"""

import random
import re
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from exgrpo_core.types import Int32Array
from jobs.contamination.report import ModelProbe
from jobs.engines.embedded.model import PolicyModel, generate, score_sequences
from jobs.engines.embedded.packing import TokenSequence
from jobs.engines.embedded.sampling import Sampler
from jobs.tasks.questions import encode_prompt

_NUMBER = re.compile(r"(?<![\w^_.\\])(?<![\^_]\{)[1-9]\d+(?!\w)")
_YEARS = range(1900, 2101)
NUM_VERSIONS = 9
NUM_WORDS = 13
"""Words in a run. Source: Brown et al. 2020, Language Models are Few-Shot Learners, appendix C."""
_WORD = re.compile(r"\w+")


def with_other_numbers(text: str, rng: random.Random) -> str | None:
    """Return the text with other numbers of as many digits, or None if it has none to change.

    Numbers of two and more digits are changed, equal ones equally; zeros at the end stay, as do years and powers: other
    ones would look odd to any model.
    """
    changed: dict[str, str] = {}
    for number in _NUMBER.findall(text):
        if int(number) not in _YEARS and number not in changed:
            changed[number] = _other_number(number, rng, {*changed, *changed.values()})
    if not changed:
        return None
    return _NUMBER.sub(lambda number: changed.get(number.group(), number.group()), text)


def _other_number(number: str, rng: random.Random, taken: set[str]) -> str:
    """Return another number of as many digits and zeros at the end, if possible not one of those taken."""
    head = number.rstrip("0")
    zeros = number[len(head) :]
    first = 10 ** (len(head) - 1)
    sample = rng.sample(range(first, 10 * first), min(9 * first, 60))
    others = [str(value) + zeros for value in sample if value % 10 and str(value) != head]
    return next((other for other in others if other not in taken), others[0])


def probe_model(policy: PolicyModel, questions: Sequence[str], seed: int = 0) -> ModelProbe:
    """Return what a model knows of questions, as texts without a template, beside versions with other numbers."""
    rng = random.Random(seed)
    families = [family for question in questions if (family := _with_versions(question, rng))]
    encoded = [[_encode(policy, text) for text in family] for family in families]
    likelihoods = _mean_log_probs(policy, [ids for family in encoded for ids in family])
    by_family = np.reshape(likelihoods, (len(encoded), NUM_VERSIONS + 1))
    completed = _are_completed(policy, [ids for family in encoded for ids in family[:2]])
    return ModelProbe(
        num_compared=len(families),
        num_completed=sum(completed[::2]),
        num_completed_changed=sum(completed[1::2]),
        num_likeliest=int((by_family[:, :1] > by_family[:, 1:]).all(axis=1).sum()),
        num_versions=NUM_VERSIONS,
    )


def _with_versions(question: str, rng: random.Random) -> list[str]:
    """Return a question and its versions with other numbers; nothing if it has no numbers to change."""
    versions = [with_other_numbers(question, rng) for _ in range(NUM_VERSIONS)]
    changed = [version for version in versions if version is not None]
    return [question, *changed] if len(changed) == NUM_VERSIONS else []


def _encode(policy: PolicyModel, text: str) -> Int32Array:
    ids = encode_prompt(policy.tokenizer, text, adds_special_tokens=True)
    return np.asarray(ids[: policy.context_tokens], dtype=np.int32)


def _mean_log_probs(policy: PolicyModel, texts: Sequence[Int32Array]) -> list[float]:
    """Return the mean log-prob of each text's tokens behind the first one, in nats."""
    scores = score_sequences(policy, [TokenSequence(ids[:1], ids[1:]) for ids in texts], 1.0)
    return [float(log_probs.mean()) for log_probs in scores.log_probs]


def _are_completed(policy: PolicyModel, texts: Sequence[Int32Array]) -> list[bool]:
    if not texts:
        return []
    halves = [ids.size // 2 for ids in texts]
    longest = max(ids.size - half for ids, half in zip(texts, halves, strict=True))
    sampler = Sampler(0.0, torch.Generator(policy.device).manual_seed(0))
    written = generate(policy, [ids[:half] for ids, half in zip(texts, halves, strict=True)], longest, sampler)
    return [
        np.array_equal(response.token_ids[: ids.size - half], ids[half:])
        for response, ids, half in zip(written, texts, halves, strict=True)
    ]


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
