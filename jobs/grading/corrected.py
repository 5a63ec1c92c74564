"""The corrected scheme: cases decided before Math-Verify is asked; the rules are written in `schemes`."""

import re
from fractions import Fraction

from jobs.grading.boxes import boxes_of_last_paragraph
from jobs.grading.math_answer import grade_without_verifier
from jobs.grading.notation import denies_its_number, digits_and_base, form_of, text_of_list
from jobs.grading.outcomes import Outcome
from jobs.grading.quantities import Quantity, bare_text, ends_in_variable, is_arithmetic, read_number, read_quantity
from jobs.grading.units import PERCENT, split_unit
from jobs.grading.worker_process import Comparison


def decide_corrected(gold: str, boxed: str, response: str) -> Outcome | Comparison:
    """Return the outcome where it can be told at once, else what a grading process has to compare."""
    if not boxed.strip() or len({re.sub(r"\s", "", content) for content in boxes_of_last_paragraph(response)}) > 1:
        return Outcome.UNPARSED
    decided = grade_without_verifier(gold, boxed)
    if decided is Outcome.CORRECT:
        return decided
    based = _decide_base(gold, boxed)
    if based is not None:
        return based
    gold_quantity = None if ends_in_variable(gold) else read_quantity(gold)
    return _decide_form(gold, boxed) if gold_quantity is None else _decide_number(gold, gold_quantity, boxed)


def _decide_base(gold: str, boxed: str) -> Outcome | None:
    """Return the outcome if both are digits and a base is said; one that only one side says is the one asked for."""
    left, right = digits_and_base(gold), digits_and_base(boxed)
    if left is None or right is None or left[1] is right[1] is None:
        return None
    is_same_base = left[1] is None or right[1] is None or left[1] == right[1]
    return Outcome.CORRECT if is_same_base and left[0] == right[0] else Outcome.WRONG


def _decide_form(gold: str, boxed: str) -> Outcome | Comparison:
    """Decide where the gold is no number: by brackets, and a number does not equal a term with a variable."""
    gold_form, form = form_of(gold), form_of(boxed)
    if {gold_form, form} == {"set", "tuple"} or (ends_in_variable(gold) and read_number(bare_text(boxed)) is not None):
        return Outcome.WRONG
    if gold_form == "tuple" and form == "list" and "=" not in boxed:
        return "training", gold, f"({text_of_list(boxed)})"
    return "training", gold, boxed


def _decide_number(gold: str, gold_quantity: Quantity, boxed: str) -> Outcome | Comparison:
    """Decide where the gold is a number."""
    if denies_its_number(boxed):
        return Outcome.UNPARSED
    quantity = read_quantity(boxed)
    if quantity is not None:
        return _decide_quantities(gold_quantity, quantity) or ("training", gold, boxed)
    return Outcome.WRONG if is_arithmetic(split_unit(bare_text(boxed))[0]) else ("training", gold, boxed)


def _decide_quantities(gold: Quantity, answer: Quantity) -> Outcome | None:
    """Return the outcome, or None where a decimal may be rounded, which is for Math-Verify to decide."""
    if (gold.unit == PERCENT) != (answer.unit == PERCENT) and None in (gold.unit, answer.unit):
        return _decide_percentage(gold, answer)
    gold_size = answer_size = Fraction(1)
    if gold.unit is not None and answer.unit is not None:
        if gold.unit.powers != answer.unit.powers:
            return Outcome.WRONG
        gold_size, answer_size = gold.unit.size, answer.unit.size
    if gold.value * gold_size == answer.value * answer_size:
        return Outcome.CORRECT
    is_converted = gold_size != answer_size or gold.is_scaled or answer.is_scaled
    are_whole = gold.value.denominator == 1 and answer.value.denominator == 1
    return Outcome.WRONG if is_converted or are_whole else None


def _decide_percentage(gold: Quantity, answer: Quantity) -> Outcome | None:
    """Return that a percentage is its share, or the same number where the other one can be no share."""
    share, percentage = (gold.value, answer.value) if answer.unit == PERCENT else (answer.value, gold.value)
    is_left_out = share == percentage and (answer.unit is None or abs(gold.value) > 1)
    return Outcome.CORRECT if share * 100 == percentage or is_left_out else None
