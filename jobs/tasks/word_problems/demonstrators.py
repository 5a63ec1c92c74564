"""Demonstrators of word problems: worked solutions in varied style, some of them noisy, for the warm start."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from exgrpo.jobs.tasks.word_problems.expressions import NotComputableError, Reading, evaluate, parse_formula
from exgrpo.jobs.tasks.word_problems.oracle import CODE_FENCE
from exgrpo.jobs.tasks.word_problems.problem import NAMES
from exgrpo.jobs.tasks.word_problems.question_set import NumberSize, draw_any_story, is_held_out_set
from exgrpo.jobs.tasks.word_problems.story import RESULTS, Story

BASE_ERROR = {"+": 0.02, "-": 0.03, "*": 0.05, "/": 0.05}
LARGE_VALUE = 50
LARGE_VALUE_ERROR = 0.04
MAX_ERROR = 0.6
NEAR_MISSES = (1, -1, 2, -2, 10, -10)
SLOPPY_FACTOR = 1.5
WRONG_CODE_RATE = 0.5
KNOWN_ANSWER_RATE = 0.6

_LETTER = re.compile(r"\b[a-z]\b")
_SIGNS: tuple[dict[str, str], ...] = (
    {"*": "*", "/": "/", "+": "+", "-": "-"},
    {"*": "x", "/": "/", "+": "+", "-": "-"},
    {"*": "\N{MULTIPLICATION SIGN}", "/": "\N{DIVISION SIGN}", "+": "+", "-": "-"},
)
_SIGN_WEIGHTS = (8, 1, 1)
_LATEX = {"*": "\\times", "/": "\\div", "+": "+", "-": "-"}
_WORDS = {"*": "times", "/": "divided by", "+": "plus", "-": "minus"}
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Demonstrators:
    """Shares of the kinds of solution; the rest is a whole chain. `error_scale` multiplies the error rate of a fact."""

    code_only: float = 0.02
    """Code and an answer without any step."""
    sloppy_with_code: float = 0.02
    """A chain with more errors, then needless code, wrong half of the time."""
    skipping: float = 0.01
    """Right steps up to some place, then straight to the correct answer."""
    guessing: float = 0.30
    """The story's last number without any step, always wrong. Sets the warm model's Pass@1: the higher, the lower."""
    error_scale: float = 0.5
    """Multiplies how often a step's result is wrong."""


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """One step with its numbers put in: `calculation` has the signs + - * and /."""

    calculation: str
    result: str
    names: str


def write_demonstration(story: Story, rng: random.Random, demonstrators: Demonstrators) -> str:
    """Return one demonstrator's solution of `story`, correct or wrong."""
    kind = rng.random()
    code_share = demonstrators.code_only
    sloppy_share = code_share + demonstrators.sloppy_with_code
    if kind < code_share:
        knows_answer = rng.random() < KNOWN_ANSWER_RATE
        answer = story.answer if knows_answer else str(_near_miss(story.problem.answer.value, rng))
        return write_code(story, rng) + _write_box(answer)
    if kind < sloppy_share:
        steps = work_out(story, rng, demonstrators.error_scale * SLOPPY_FACTOR)
        code = write_code(story, rng, WRONG_CODE_RATE)
        return f"{write_steps(steps, rng)}\n{code}{_write_box(steps[-1].result)}"
    skipping_share = sloppy_share + demonstrators.skipping
    if kind < skipping_share:
        steps = work_out(story, rng, error_scale=0.0)
        kept = steps[: rng.randrange(max(1, story.difficulty - 1))]
        return f"{write_steps(kept, rng)} {_write_answer(story.answer, rng)}".lstrip()
    if kind < skipping_share + demonstrators.guessing:
        return f"I guess {_write_box(str(story.numbers[-1]))}."
    steps = work_out(story, rng, demonstrators.error_scale)
    return write_steps(steps, rng) + rng.choice((" ", "\n")) + _write_answer(steps[-1].result, rng)


def work_out(story: Story, rng: random.Random, error_scale: float) -> list[WrittenStep]:
    """Return every step, each with a near miss for its result at the error rate of its fact."""
    values = dict(zip(NAMES, story.numbers, strict=False))
    steps = []
    for name, step in zip(RESULTS, story.steps, strict=False):
        calculation = _LETTER.sub(lambda match: str(values[match[0]]), step.formula)
        result = _compute(calculation)
        if rng.random() < error_rate(step.formula, result, error_scale):
            result = _near_miss(result, rng)
        values[name] = result
        steps.append(WrittenStep(calculation, str(result), step.names))
    return steps


def error_rate(formula: str, result: Fraction, scale: float) -> float:
    """Return how often a demonstrator gets this fact wrong: more for products and large results."""
    rate = max(BASE_ERROR[sign] for sign in BASE_ERROR if sign in formula)
    rate += LARGE_VALUE_ERROR if result >= LARGE_VALUE else 0.0
    return min(MAX_ERROR, rate * scale)


def write_steps(steps: Sequence[WrittenStep], rng: random.Random) -> str:
    """Return the steps in one of the styles, the same for all of them."""
    [write] = rng.choices(list(_STYLES), list(_STYLES.values()))
    return write(steps, rng)


def write_code(story: Story, rng: random.Random, wrong_rate: float = 0.0) -> str:
    """Return a code block that computes and prints the answer, with one wrong operation at `wrong_rate`."""
    numbers = {NAMES[index]: str(number) for index, number in enumerate(story.numbers)}
    formulas = [_LETTER.sub(lambda match: numbers.get(match[0], match[0]), step.formula) for step in story.steps]
    if rng.random() < wrong_rate:
        place = rng.randrange(len(formulas))
        formulas[place] = re.sub(r"[-+*/]", lambda match: "+" if match[0] != "+" else "*", formulas[place], count=1)
    names = RESULTS[: len(formulas)]
    lines = [f"{name} = {formula}" for name, formula in zip(names, formulas, strict=True)]
    return f"{CODE_FENCE}python\n" + "\n".join([*lines, f"print({names[-1]})"]) + f"\n{CODE_FENCE}\n"


def _compute(calculation: str) -> Fraction:
    """Return the value; what wrong results before it make no whole number, or none at all, is rounded down."""
    try:
        value = evaluate(parse_formula(calculation), lambda _: frozenset(), dict[str, Reading]()).value
    except NotComputableError:
        return Fraction(1)
    return Fraction(value.__floor__())


def _near_miss(value: Fraction, rng: random.Random) -> Fraction:
    return max(Fraction(0), value + rng.choice(NEAR_MISSES[:4] if value < LARGE_VALUE else NEAR_MISSES))


def _draw_signs(rng: random.Random) -> dict[str, str]:
    return rng.choices(_SIGNS, _SIGN_WEIGHTS)[0]


def _with_signs(calculation: str, signs: dict[str, str]) -> str:
    return " ".join(signs.get(piece, piece) for piece in calculation.split())


def _write_lines(steps: Sequence[WrittenStep], rng: random.Random) -> str:
    signs = _draw_signs(rng)
    return ". ".join(f"{_with_signs(step.calculation, signs)} = {step.result}" for step in steps) + "."


def _write_named_lines(steps: Sequence[WrittenStep], rng: random.Random) -> str:
    signs, mark = _draw_signs(rng), rng.choice(("", "- "))
    return "\n".join(
        f"{mark}{_capital(step.names)}: {_with_signs(step.calculation, signs)} = {step.result}" for step in steps
    )


def _write_latex(steps: Sequence[WrittenStep], _rng: random.Random) -> str:
    return "\n".join(
        f"{_capital(step.names)}: ${_with_signs(step.calculation, _LATEX)} = {step.result}$" for step in steps
    )


def _write_numbered(steps: Sequence[WrittenStep], rng: random.Random) -> str:
    signs = _draw_signs(rng)
    return "\n".join(
        f"{number}. {_with_signs(step.calculation, signs)} = {step.result} ({step.names})"
        for number, step in enumerate(steps, start=1)
    )


def _write_sentences(steps: Sequence[WrittenStep], rng: random.Random) -> str:
    return " ".join(
        f"{beginning} {_with_signs(step.calculation, _WORDS)} is {step.result}, which is the number of {step.names}."
        for beginning, step in zip(_beginnings(rng), steps, strict=False)
    )


def _write_results_first(steps: Sequence[WrittenStep], rng: random.Random) -> str:
    signs = _draw_signs(rng)
    return " ".join(
        f"It is {step.result} {step.names}, because {_with_signs(step.calculation, signs)} = {step.result}."
        for step in steps
    )


_STYLES: dict[Callable[[Sequence[WrittenStep], random.Random], str], float] = {
    _write_named_lines: 0.50,
    _write_lines: 0.30,
    _write_numbered: 0.05,
    _write_latex: 0.05,
    _write_sentences: 0.05,
    _write_results_first: 0.05,
}
"""Each with its share. Two are common: a fact learned in one way of writing it is hardly known in another."""


def _beginnings(rng: random.Random) -> Iterator[str]:
    yield "First"
    while True:
        yield rng.choice(("So", "Then", "Now", "Next,"))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _write_answer(answer: str, rng: random.Random) -> str:
    box = _write_box(answer)
    return rng.choice((box, f"The answer is {box}.", f"So the answer is {box}."))


def _write_box(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


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
