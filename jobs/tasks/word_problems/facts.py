"""Facts of arithmetic as the stories have them, for the warm start: a small model knows few of them."""

import random
import re
from fractions import Fraction

from jobs.tasks.word_problems.demonstrators import WrittenStep, work_out
from jobs.tasks.word_problems.forms import NumberSize
from jobs.tasks.word_problems.question_set import draw_any_story, is_held_out_set

_NUMBER = re.compile(r"\d+")


def make_facts(
    num_facts: int, seed: int, min_operations: int, max_operations: int, size: NumberSize
) -> list[WrittenStep]:
    """Return steps of further stories, none with a set of numbers that is held out."""
    rng = random.Random(f"{seed} facts")
    facts: list[WrittenStep] = []
    while len(facts) < num_facts:
        story = draw_any_story(rng, min_operations, max_operations, size)
        if story is None:
            continue
        step = rng.choice(work_out(story, rng, error_scale=0.0))
        if not is_held_out_set(sorted(map(Fraction, _NUMBER.findall(step.calculation)))):
            facts.append(step)
    return facts
