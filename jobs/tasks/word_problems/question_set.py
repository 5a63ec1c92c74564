"""Sets of stories: distinct, reproducible by seed; a story's numbers alone say whether it is held out."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from exgrpo.jobs.tasks.questions import TextEncoder, build_question, encode_prompt
from exgrpo.jobs.tasks.word_problems.expressions import Expression, NotComputableError, Reading, evaluate, parse_formula
from exgrpo.jobs.tasks.word_problems.problem import NAMES
from exgrpo.jobs.tasks.word_problems.story import SOURCE, Story, StoryStep
from exgrpo_core.types import Question

NumberSize = Literal["tiny", "small", "medium", "large"]

FORMS_DIR = Path(__file__).parent / "forms"
LARGEST_NUMBER = 99_999
MAX_DRAWS = 2000
PEOPLE = (
    *("Ada", "Bruno", "Carla", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Liam", "Marta"),
    *("Nils", "Olga", "Pedro", "Quinn", "Ravi", "Sofia", "Tariq", "Uma", "Viktor", "Wanda", "Yusuf"),
)
_ROLES = ("name", "friend", "third")
_RANGES: dict[str, dict[NumberSize, tuple[int, int]]] = {
    "few": {"tiny": (2, 6), "small": (2, 9), "medium": (2, 12), "large": (3, 20)},
    "some": {"tiny": (2, 12), "small": (3, 20), "medium": (8, 60), "large": (20, 200)},
    "price": {"tiny": (2, 8), "small": (2, 12), "medium": (3, 25), "large": (5, 80)},
    "factor": {"tiny": (2, 3), "small": (2, 4), "medium": (2, 5), "large": (2, 6)},
}
_PERCENTAGES = {
    "tiny": (10, 50),
    "small": (10, 25, 50),
    "medium": (10, 20, 25, 50, 75),
    "large": (5, 10, 15, 20, 25, 30, 40, 60, 75),
}
MAX_OPERATIONS = 6
HELD_OUT_SHARE = 8
"""One of so many sets of numbers is held out: never trained on or demonstrated, whatever the seed."""
MAX_MISSES = 500
"""Draws in a row that give no new story before a set counts as used up."""


class NoStoryError(ValueError):
    """No numbers of this size fit a form."""


@dataclass(frozen=True)
class Form:
    """One kind of story; `draw` says for each letter how its number is drawn, a..j are in the text, x..z are not."""

    name: str
    texts: tuple[str, ...]
    draw: dict[str, str]
    steps: tuple[tuple[str, str], ...]
    also: tuple[str, ...]
    words: dict[str, tuple[str, ...]]

    @property
    def num_operations(self) -> int:
        """How many steps lead to the answer."""
        return len(self.steps)


@cache
def load_forms() -> tuple[Form, ...]:
    """Return all forms, by file and in its order; the file's name is their topic."""
    files = sorted(FORMS_DIR.glob("*.yaml"))
    return tuple(_form(item) for path in files for item in yaml.safe_load(path.read_text(encoding="utf-8")))


def draw_story(rng: random.Random, form: Form, size: NumberSize) -> Story:
    """Return a story of this form; its numbers and results are whole, positive and, in the text, all different.

    Raises:
        NoStoryError: No numbers of this size fit.
    """
    people = dict(zip(_ROLES, rng.sample(PEOPLE, len(_ROLES)), strict=True))
    words = people | {gap: rng.choice(choices) for gap, choices in form.words.items()}
    text = rng.choice(form.texts)
    for _ in range(MAX_DRAWS):
        drawn = _draw_numbers(rng, form, size)
        if drawn is None:
            continue
        shown = {letter: drawn[letter] for letter in sorted(drawn) if letter in NAMES}
        gaps = words | {letter: str(value) for letter, value in shown.items()}
        steps = tuple(StoryStep(formula, names.format(**gaps)) for formula, names in form.steps)
        return Story(form.name, text.format(**gaps), tuple(shown.values()), steps, form.also)
    raise NoStoryError(f"{form.name}: no {size} numbers fit.")


def _draw_numbers(rng: random.Random, form: Form, size: NumberSize) -> dict[str, Fraction] | None:
    """Return a number for each letter, None if they or a result do not fit."""
    values: dict[str, Fraction] = {}
    for letter, source in form.draw.items():
        values[letter] = _draw_number(rng, source, size, values)
    shown = [value for letter, value in values.items() if letter in NAMES]
    if len(set(shown)) < len(shown):
        return None
    results = dict(values)
    for letter, (formula, _) in zip("pqrstu", form.steps, strict=False):
        try:
            results[letter] = _compute(formula, results)
        except NotComputableError:
            return None
    fits = all(value.denominator == 1 and 0 < value <= LARGEST_NUMBER for value in results.values())
    # The answer cannot be copied from the story.
    return values if fits and results["pqrstu"[form.num_operations - 1]] not in shown else None


def _draw_number(rng: random.Random, source: str, size: NumberSize, values: dict[str, Fraction]) -> Fraction:
    if source == "percent":
        return Fraction(rng.choice(_PERCENTAGES[size]))
    if source in _RANGES:
        return Fraction(rng.randint(*_RANGES[source][size]))
    return _compute(source, values)


def _compute(formula: str, values: dict[str, Fraction]) -> Fraction:
    letters = {name: Reading(value, frozenset()) for name, value in values.items()}
    return evaluate(_parse(formula), lambda _: frozenset(), letters).value


@lru_cache(maxsize=1024)
def _parse(formula: str) -> Expression:
    return parse_formula(formula)


def _form(item: dict[str, Any]) -> Form:
    known = {"name", "texts", "draw", "steps", "also"}
    return Form(
        name=item["name"],
        texts=tuple(item["texts"]),
        draw={letter: str(source) for letter, source in item["draw"].items()},
        steps=tuple((str(formula), str(names)) for formula, names in item["steps"]),
        also=tuple(item.get("also", ())),
        words={gap: tuple(choices) for gap, choices in item.items() if gap not in known},
    )


def make_stories(
    num_stories: int,
    seed: int,
    min_operations: int = 1,
    max_operations: int = MAX_OPERATIONS,
    size: NumberSize = "medium",
    *,
    is_held_out: bool = False,
) -> list[Story]:
    """Return stories with different texts and different sets of numbers, difficulties drawn uniformly.

    The first n of a longer set are the set of n with the same seed.

    Raises:
        ValueError: The range of operations is empty or too long, or there are not enough such stories.
    """
    if not 1 <= min_operations <= max_operations <= MAX_OPERATIONS:
        raise ValueError(
            f"min_operations and max_operations: expected 1 <= min <= max <= {MAX_OPERATIONS}, "
            f"got {min_operations} and {max_operations}."
        )
    rng = random.Random(f"{seed} {is_held_out}")
    stories: list[Story] = []
    seen: set[object] = set()
    num_misses = 0
    while len(stories) < num_stories:
        story = draw_any_story(rng, min_operations, max_operations, size)
        if (
            story is None
            or story.text in seen
            or story.number_set in seen
            or is_held_out_set(story.number_set) != is_held_out
        ):
            num_misses += 1
            if num_misses > MAX_MISSES:
                raise ValueError(
                    f"num_questions, num_held_out: only {len(stories)} different stories were made of {num_stories}; "
                    "ask for fewer, or for larger numbers or more operations."
                )
            continue
        seen |= {story.text, story.number_set}
        stories.append(story)
        num_misses = 0
    return stories


def draw_any_story(rng: random.Random, min_operations: int, max_operations: int, size: NumberSize) -> Story | None:
    """Return a story, held out or not; None where the drawn form needs more different numbers than the size has."""
    try:
        num_operations = rng.randint(min_operations, max_operations)
        form = rng.choice([form for form in load_forms() if form.num_operations == num_operations])
        return draw_story(rng, form, size)
    except NoStoryError:
        return None


def make_question(index: int, story: Story, tokenizer: TextEncoder) -> Question:
    """Return a story as the core's question, without a chat template; its metadata has the story's details."""
    prompt_ids = encode_prompt(tokenizer, story.prompt)
    metadata = {"data_source": SOURCE, "answer_kind": SOURCE, "difficulty": story.difficulty} | story.details()
    return build_question(index, story.question_id, story.prompt, story.answer, prompt_ids, metadata)


def is_held_out_set(numbers: Sequence[Fraction]) -> bool:
    """Return whether a set of numbers, sorted, is held out."""
    content = " ".join(str(number) for number in numbers)
    return hashlib.sha256(content.encode()).digest()[0] % HELD_OUT_SHARE == 0
