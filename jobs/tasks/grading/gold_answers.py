"""Gold answers that the grader cannot read: correct answers to their questions would earn nothing, without a word."""

import re
from collections.abc import Sequence

from exgrpo.jobs.tasks.grading.answer_grader import MAX_ANSWER_CHARS, AnswerGrader, GradeItem
from exgrpo.jobs.tasks.grading.equality import as_latex
from exgrpo.jobs.tasks.grading.reward_function import Grade

MAX_COMPARED = 200
"""Most gold answers of a source with words around a number that are put to the grader, some milliseconds each."""
_NUM_EXAMPLES = 3
_MAX_WORDS = 4
"""Longer texts are sentences, which no response boxes word by word."""
_COMMANDS = re.compile(r"\\(?:begin|end|text\w*|mathrm|mathbf|mathit|operatorname|mbox)\s*\{[^{}]*\}|\\[A-Za-z]+")
_FUNCTIONS = r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|exp|sqrt|max|min|mod|gcd|lcm|lim|det|and|deg"
_WORD = re.compile(rf"(?<![^\W\d_])(?!(?:{_FUNCTIONS})(?![^\W\d_]))[^\W\d_]{{4,}}|[^\x00-\u036f\W\d_]+")
"""Fewer letters are a unit or a product."""
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")


def unreadable_golds(golds: Sequence[str]) -> tuple[list[int], int]:
    """Return the positions of gold answers to mathematics that no correct answer equals, and how many were looked at.

    Raises:
        GraderError: Grading processes do not start.
    """
    plain = [as_latex(gold) for gold in golds]
    found = [position for position, gold in enumerate(plain) if _is_no_answer(gold)]
    left = sorted(set(range(len(plain))).difference(found))
    doubtful = [position for position in left if _hides_number(plain[position])]
    compared, num_looked = doubtful[:MAX_COMPARED], len(golds)
    if not compared:
        return found, num_looked
    if len(doubtful) > MAX_COMPARED:
        num_looked = doubtful[MAX_COMPARED]
        found = [position for position in found if position < num_looked]
    pairs = [(position, number) for position in compared for number in _numbers(plain[position])]
    with AnswerGrader() as grader:
        grades = grader.grade(
            [GradeItem(golds[position], f"\\boxed{{{number}}}", "math") for position, number in pairs]
        )
    readable = {position for (position, _), grade in zip(pairs, grades, strict=True) if grade is Grade.CORRECT}
    return sorted([*found, *(position for position in compared if position not in readable)]), num_looked


def gold_notices(origin: str, golds: Sequence[tuple[str, str]]) -> list[str]:
    """Return a notice with the number of unreadable gold answers and three of them; each comes after where it is."""
    found, num_looked = unreadable_golds([gold for _, gold in golds])
    if not found:
        return []
    examples = "; ".join(f"{golds[position][0]}: {golds[position][1][:60]!r}" for position in found[:_NUM_EXAMPLES])
    of_first = "" if num_looked == len(golds) else "first "
    return [
        f"{origin}: {len(found):,} of the {of_first}{num_looked:,} gold answers cannot be read by the grader, so right "
        f"answers to them earn nothing ({examples}); write only the answer, such as 7."
    ]


def _is_no_answer(gold: str) -> bool:
    bare = gold.replace("\\{", "").replace("\\}", "")
    is_cut = bare.count("{") != bare.count("}")
    is_sentence = not any(map(str.isdigit, gold)) and len(_words(gold)) > _MAX_WORDS
    return is_cut or is_sentence or len(gold) > MAX_ANSWER_CHARS or not any(map(str.isalnum, gold))


def _hides_number(gold: str) -> bool:
    return bool(_words(gold)) and _NUMBER.search(gold) is not None


def _words(gold: str) -> list[str]:
    return _WORD.findall(_COMMANDS.sub(" ", gold))


def _numbers(gold: str) -> list[str]:
    """Return the first and the last number in a text: one of them is its answer, if a number is."""
    numbers = _NUMBER.findall(gold)
    return list(dict.fromkeys([numbers[0], numbers[-1]]))
