"""Code in trajectories: the paper's code table for a run, and the rules that detect code."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from exgrpo.app.components.widgets import data_table, grid
from exgrpo.app.formats import known, share
from exgrpo.db.rows.chains_of_thought import CodeLine, RuleCount
from exgrpo.db.statistics import Rate, interval_text, wilson
from exgrpo.jobs.actions.studies.definition import load_study, number_of
from exgrpo.jobs.evaluation.analysis.report import RuleTable, tabulate_counts
from exgrpo.jobs.evaluation.judging.calibration import Calibration, correct_rate

_PERCENT = 100.0
PARSER = "parser"
_PRINTED = ("Entropy, no code", "Entropy, code", "CoT %, no code", "CoT %, code", "Difference")


def show_code(lines: Sequence[CodeLine], calibration: Calibration | None) -> None:
    """Show one row of the run and one of the paper for each difficulty, and how many answers were judged."""
    data_table.show_card(
        "Entropy and CoT correctness, code off and on",
        code_frame(lines, calibration), "code-table",
        "Entropy and share of valid chains of thought without and with code, this run next to the paper",
        _code_columns(), _note(lines, calibration),
    )  # fmt: skip


def code_frame(lines: Sequence[CodeLine], calibration: Calibration | None) -> pd.DataFrame:
    """Return the rows: this run, the paper's where it prints one (tab:code_analysis), and all questions together."""
    lines_of_run = {(line.group, line.has_code): line for line in lines}
    [table] = load_study("code-analysis").tables
    printed = {row.row.lower(): map(number_of, row.values) for row in table.rows}
    rows = []
    for group in dict.fromkeys(line.group for line in lines):
        off, on = lines_of_run[group, False], lines_of_run[group, True]
        rows.append(_run_row(group, off, on))
        if calibration is not None:
            rows.append(_corrected_row(group, off, on, calibration))
        if group in printed:
            rows.append({"Questions": group, "Source": "paper"} | dict(zip(_PRINTED, printed[group], strict=True)))
    return pd.DataFrame(rows)


def _run_row(group: str, off: CodeLine, on: CodeLine) -> dict[str, object]:
    return {
        "Questions": group,
        "Source": "this run",
        "Entropy, no code": known(off.mean_entropy),
        "Entropy, code": known(on.mean_entropy),
        "± 95%, no code": known(off.entropy_half_interval),
        "± 95%, code": known(on.entropy_half_interval),
        **_shares(*(wilson(round(_valid(line)), line.num_judged) for line in (off, on))),
        "Answers, no code": off.num_trajectories,
        "Answers, code": on.num_trajectories,
    }


def _corrected_row(group: str, off: CodeLine, on: CodeLine, calibration: Calibration) -> dict[str, object]:
    corrected = (correct_rate(line.num_valid_by_judge, line.num_by_judge, calibration) for line in (off, on))
    rates = (
        Rate(rate.value, rate.low, rate.high, rate.observed.num_items if rate.is_informative else 0)
        for rate in corrected
    )
    return {"Questions": group, "Source": "corrected"} | _shares(*rates)


def _shares(off: Rate, on: Rate) -> dict[str, object]:
    """Return the shares of valid chains without and with code with intervals, and their difference."""
    return {
        "CoT %, no code": known(_PERCENT * off.value),
        "CoT %, code": known(_PERCENT * on.value),
        "Difference": known(_PERCENT * (on.value - off.value)),
        "Interval, no code": _interval(off),
        "Interval, code": _interval(on),
    }


def _code_columns() -> dict[str, ColumnConfig]:
    config = st.column_config
    numbers = {
        "Entropy": config.NumberColumn(format="%.4f", help="Mean token entropy, nats", width=104),
        "± 95%": config.NumberColumn(format="%.4f", help="Half of the mean entropy's 95% interval", width=104),
        "CoT %": config.NumberColumn(
            format="%.1f", help="Share of valid chains of thought among the judged", width=104
        ),
        "Answers": config.NumberColumn(format="localized", help="Correct answers, judged or not", width=116),
    }
    pairs = {f"{name}, {end}": column for name, column in numbers.items() for end in ("no code", "code")}
    others = {
        "Questions": config.TextColumn(width=84),
        "Source": config.TextColumn(width=84),
        "Difference": config.NumberColumn(format="%+.1f", help="With code minus without, in points", width=88),
    }
    return pairs | others


def _note(lines: Sequence[CodeLine], calibration: Calibration | None) -> str:
    num_judged = sum(line.num_judged for line in lines if line.group == "all")
    num_all = sum(line.num_trajectories for line in lines if line.group == "all")
    note = f"{num_judged:,} of {num_all:,} correct answers have a verdict; intervals are of 95%, Wilson's of shares, "
    note += (
        "and take answers to one question as independent. The paper's rows are on-policy rollouts judged by Qwen3-32B."
    )
    if calibration is not None:
        note += (
            f" Corrected for the judge's errors: sensitivity {share(calibration.sensitivity.value)}, specificity "
            f"{share(calibration.specificity.value)} on {calibration.num_items:,} labelled items."
        )
    return note


def _valid(line: CodeLine) -> float:
    return line.num_judged * line.cot_correctness if line.num_judged else 0.0


def _interval(rate: Rate) -> str | None:
    return f"{interval_text((rate.low, rate.high))} of {rate.num_items:,}" if rate.num_items else None


def show_rules(counts: Sequence[RuleCount]) -> None:
    """Show the rules, and how many of a run's trajectories each fits where they are counted."""
    rules = rule_table(tabulate_counts(counts))
    columns = list(rules) if counts else ["Rule", "Kind", "Cue of the paper", "Applied as"]
    grid.draw(rules[columns], "code-rules", "The rules that detect code")


def rule_table(rules: RuleTable) -> pd.DataFrame:
    """Return one row per rule, the parser first."""
    rows = [
        (PARSER, rules.num_python_blocks, 100 * rules.python_block_rate, "parser", "fence that holds Python", "parsed")
    ]
    rows += [(rule.rule_id, rule.num_texts, 100 * rule.rate, rule.kind, rule.cue, rule.form) for rule in rules.rules]
    return pd.DataFrame(rows, columns=["Rule", "Trajectories", "Share", "Kind", "Cue of the paper", "Applied as"])
