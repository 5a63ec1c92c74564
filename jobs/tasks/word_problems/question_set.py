"""Sets of stories: distinct, reproducible by seed; a story's numbers alone say whether it is held out."""

import hashlib
import random
from collections.abc import Sequence
from fractions import Fraction

from exgrpo_core.types import Question
from jobs.tasks.questions import TextEncoder, build_question, encode_prompt
from jobs.tasks.word_problems.forms import Form, NoStoryError, NumberSize, draw_story, load_forms
from jobs.tasks.word_problems.story import SOURCE, Story

MAX_OPERATIONS = 6
HELD_OUT_SHARE = 8
"""One of so many sets of numbers is held out: never trained on or demonstrated, whatever the seed."""
MAX_MISSES = 500
"""Draws in a row that give no new story before a set counts as used up."""


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
        if story is None or story.text in seen or story.number_set in seen or holds_out(story) != is_held_out:
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
        return draw_story(rng, _draw_form(rng, min_operations, max_operations), size)
    except NoStoryError:
        return None


def make_question(index: int, story: Story, tokenizer: TextEncoder) -> Question:
    """Return a story as the core's question, without a chat template; its metadata has the story's details."""
    prompt_ids = encode_prompt(tokenizer, story.prompt)
    return build_question(index, story.question_id, story.prompt, story.answer, prompt_ids, story_metadata(story))


def story_metadata(story: Story) -> dict[str, object]:
    """Return what a question knows of its story."""
    return {"data_source": SOURCE, "answer_kind": SOURCE, "difficulty": story.difficulty} | story.details()


def holds_out(story: Story) -> bool:
    """Return whether a story's set of numbers is held out."""
    return is_held_out_set(story.number_set)


def is_held_out_set(numbers: Sequence[Fraction]) -> bool:
    """Return whether a set of numbers, sorted, is held out."""
    content = " ".join(str(number) for number in numbers)
    return hashlib.sha256(content.encode()).digest()[0] % HELD_OUT_SHARE == 0


def _draw_form(rng: random.Random, min_operations: int, max_operations: int) -> Form:
    num_operations = rng.randint(min_operations, max_operations)
    return rng.choice([form for form in load_forms() if form.num_operations == num_operations])
