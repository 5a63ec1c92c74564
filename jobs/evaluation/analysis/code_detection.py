"""How often each rule for code in texts matches."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from exgrpo.db.rows.chains_of_thought import RuleCount
from exgrpo.jobs.tasks.grading.code_rules import CODE_RULES, bits_to_rules


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


def tabulate_counts(rows: Iterable[RuleCount], *, only_correct: bool = False) -> RuleTable:
    """Return how many trajectories, or only correct ones, match each rule, any rule, and the parser-based check."""
    counts: Counter[str] = Counter()
    num_texts = num_any = num_blocks = 0
    for row in rows:
        rule_ids = bits_to_rules(row.code_rules)
        count = row.num_correct if only_correct else row.num_trajectories
        num_texts += count
        num_any += count if rule_ids else 0
        num_blocks += count if row.has_python_block else 0
        counts.update(dict.fromkeys(rule_ids, count))

    def rate(count: int) -> float:
        return count / num_texts if num_texts else 0.0

    rules = tuple(
        RuleRate(rule.rule_id, rule.kind, rule.cue, rule.form, counts[rule.rule_id], rate(counts[rule.rule_id]))
        for rule in CODE_RULES
    )
    return RuleTable(num_texts, rules, num_any, rate(num_any), num_blocks, rate(num_blocks))
