"""Marks of each trajectory's text for the database: matching rules, and whether it has a Python block."""

from collections.abc import Iterable, MutableMapping
from typing import Any

from jobs.grading.code.blocks import has_python_block
from jobs.grading.code.rules import CODE_RULES, find_rules

_BITS = {rule.rule_id: 1 << index for index, rule in enumerate(CODE_RULES)}
_FENCES = ("```", "~~~")


def mark_code(rows: Iterable[MutableMapping[str, Any]]) -> None:
    """Add `code_rules` and `has_python_block` to trajectories by their text.

    If the task does not say whether a response has code, the rules decide.
    """
    for row in rows:
        text = row["text"]
        row["code_rules"] = rules_to_bits(find_rules(text))
        row["has_python_block"] = any(fence in text for fence in _FENCES) and has_python_block(text)
        if row["has_code"] is None:
            row["has_code"] = row["code_rules"] > 0


def rules_to_bits(rule_ids: Iterable[str]) -> int:
    """Return the rules as one number: the first bit is R1."""
    return sum(_BITS[rule_id] for rule_id in rule_ids)


def bits_to_rules(bits: int) -> tuple[str, ...]:
    """Return the ids of the rules in a number, in order."""
    return tuple(rule_id for rule_id, bit in _BITS.items() if bits & bit)
