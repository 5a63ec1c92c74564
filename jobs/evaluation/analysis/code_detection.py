"""Whether texts contain code, and how often each rule matches."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exgrpo.db.rows.chains_of_thought import RuleCount
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.tasks.grading.code_rules import CODE_RULES, bits_to_rules, find_rules, has_python_block


@dataclass(frozen=True, slots=True)
class RuleRate:
    """One line of the rule table. `rate` is the share of texts that match."""

    rule_id: str
    kind: str
    cue: str
    form: str
    num_texts: int
    rate: float


@dataclass(frozen=True, slots=True)
class RuleTable:
    """Rates of all rules on a set of texts; `any_rate` is that of texts that match at least one rule."""

    num_texts: int
    rules: tuple[RuleRate, ...]
    num_any: int
    any_rate: float
    num_python_blocks: int
    python_block_rate: float


def read_texts(path: Path, field: str) -> list[str]:
    """Return the texts of a file: that field of each JSON line, or the whole of any other file as one text.

    Raises:
        TrainingError: A line is no JSON object with such a field.
    """
    content = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix not in {".jsonl", ".ndjson"}:
        return [content]
    texts = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)[field]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise TrainingError(f"{path}, line {number}: expected a JSON object with text in {field!r}; see --field.")
        texts.append(text)
    return texts


def tabulate_rules(texts: Iterable[str]) -> RuleTable:
    """Return how many texts match each rule, any rule, and the parser-based check."""
    return _table((find_rules(text), has_python_block(text), 1) for text in texts)


def tabulate_counts(counts: Iterable[RuleCount], *, only_correct: bool = False) -> RuleTable:
    """Return the same table for a run's trajectories, from counts of the database; only correct ones if asked."""
    return _table(
        (
            bits_to_rules(row.code_rules),
            row.has_python_block,
            row.num_correct if only_correct else row.num_trajectories,
        )
        for row in counts
    )


def _table(findings: Iterable[tuple[tuple[str, ...], bool, int]]) -> RuleTable:
    counts: Counter[str] = Counter()
    num_texts = num_any = num_blocks = 0
    for rule_ids, is_block, count in findings:
        num_texts += count
        num_any += count if rule_ids else 0
        num_blocks += count if is_block else 0
        counts.update(dict.fromkeys(rule_ids, count))

    def rate(count: int) -> float:
        return count / num_texts if num_texts else 0.0

    rules = tuple(
        RuleRate(rule.rule_id, rule.kind, rule.cue, rule.form, counts[rule.rule_id], rate(counts[rule.rule_id]))
        for rule in CODE_RULES
    )
    return RuleTable(num_texts, rules, num_any, rate(num_any), num_blocks, rate(num_blocks))
