"""Whether texts contain code, and how often each rule says so."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.analysis.code_blocks import has_python_block
from jobs.analysis.code_rules import CODE_RULES, find_rules


@dataclass(frozen=True, slots=True)
class CodeFindings:
    """What one text holds: the rules that it fits, and whether a parser finds a Python block in it."""

    rule_ids: tuple[str, ...]
    has_python_block: bool

    @property
    def has_code(self) -> bool:
        """Whether any rule fits: the paper's sense of a trajectory with code."""
        return bool(self.rule_ids)


@dataclass(frozen=True, slots=True)
class RuleRate:
    """One line of the rule table. `rate` is the share of texts that fit."""

    rule_id: str
    kind: str
    cue: str
    form: str
    num_texts: int
    rate: float


@dataclass(frozen=True, slots=True)
class RuleTable:
    """Rates of all rules on a set of texts; `any_rate` is that of texts that fit at least one rule."""

    num_texts: int
    rules: tuple[RuleRate, ...]
    num_any: int
    any_rate: float
    num_python_blocks: int
    python_block_rate: float


def detect_code(text: str) -> CodeFindings:
    """Apply all rules and the parser to one text."""
    return CodeFindings(find_rules(text), has_python_block(text))


def tabulate_rules(texts: Iterable[str]) -> RuleTable:
    """Return how many texts fit each rule, any rule, and the parser-based check."""
    findings = [detect_code(text) for text in texts]
    num_texts = len(findings)
    counts = Counter(rule_id for found in findings for rule_id in found.rule_ids)
    num_any = sum(found.has_code for found in findings)
    num_blocks = sum(found.has_python_block for found in findings)

    def rate(count: int) -> float:
        return count / num_texts if num_texts else 0.0

    rules = tuple(
        RuleRate(rule.rule_id, rule.kind, rule.cue, rule.form, counts[rule.rule_id], rate(counts[rule.rule_id]))
        for rule in CODE_RULES
    )
    return RuleTable(num_texts, rules, num_any, rate(num_any), num_blocks, rate(num_blocks))
