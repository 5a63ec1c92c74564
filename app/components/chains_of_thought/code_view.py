"""Code in trajectories: the paper's code table for a run, and the rules that detect code with what fits them."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from app import address, analyses
from app.analyses import Calibration, RuleTable
from app.components.widgets import address_choice, data_table, grid, long_lists, notice
from app.formats import VALIDITY, counted, escape_control_characters, known, share
from app.queries.answers import ask
from db.queries import code_analysis
from db.rows.chains_of_thought import CodeLine, RuleHit
from db.rows.judging import JudgedSortKey
from db.rows.runs import RunRow
from db.statistics.differences import independent_difference
from db.statistics.intervals import Rate, wilson

_PERCENT = 100.0
PARSER = "parser"
_PRINTED = ("Entropy, no code", "Entropy, code", "CoT %, no code", "CoT %, code", "Difference")
"""The columns of the paper's table."""


def show_code(lines: Sequence[CodeLine], calibration: Calibration | None) -> None:
    """Show one row of the run and one of the paper for each difficulty, and how many answers were judged."""
    data_table.show_card(
        "Entropy and CoT correctness, code off and on",
        code_frame(lines, calibration), "code-table",
        "Entropy and share of valid chains of thought without and with code, this run beside the paper",
        _code_columns(), _note(lines, calibration),
    )  # fmt: skip


def code_frame(lines: Sequence[CodeLine], calibration: Calibration | None) -> pd.DataFrame:
    """Return the rows: this run, the paper's where it prints one (tab:code_analysis), and all questions together."""
    lines_of_run = {(line.group, line.has_code): line for line in lines}
    [table] = analyses.load_study("code-analysis").tables
    printed = {row.row.lower(): map(analyses.number_of, row.values) for row in table.rows}
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
    corrected = (analyses.correct_rate(line.num_valid_by_judge, line.num_by_judge, calibration) for line in (off, on))
    rates = (
        Rate(rate.value, rate.low, rate.high, rate.observed.num_items if rate.is_informative else 0)
        for rate in corrected
    )
    return {"Questions": group, "Source": "corrected"} | _shares(*rates)


def _shares(off: Rate, on: Rate) -> dict[str, object]:
    """Return the shares of valid chains without and with code and their difference, with intervals."""
    low, high = (_PERCENT * end for end in independent_difference(off, on))
    return {
        "CoT %, no code": known(_PERCENT * off.value),
        "CoT %, code": known(_PERCENT * on.value),
        "Difference": known(_PERCENT * (on.value - off.value)),
        "Interval, no code": _interval(off),
        "Interval, code": _interval(on),
        "Interval, difference": f"{low:+z.1f} to {high:+z.1f}" if off.num_items and on.num_items else None,
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
    note += "Newcombe's of their differences, "
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
    ends = f"{_PERCENT * rate.low:.1f} \N{EN DASH} {_PERCENT * rate.high:.1f}"
    return f"{ends} of {rate.num_items:,}" if rate.num_items else None


def show_rules(row: RunRow, _judge: str | None) -> None:
    """Show how many trajectories fit each rule; for the rule in the address also its newest trajectories."""
    counts = ask(code_analysis.rule_counts, row.run_id)
    if not counts:
        notice.show_empty(
            "code_off", "No rules applied yet", "Older databases have no matches of code rules; rebuild the database.",
            "exgrpo db rebuild",
        )  # fmt: skip
        return
    only_correct = st.toggle("Correct answers only", key="only-correct", bind="query-params")
    rules = analyses.tabulate_counts(counts, only_correct=only_correct)
    frame = rule_table(rules)
    _show_counts(rules)
    data_table.export_above(frame, "code-rules")
    names = [PARSER, *(rule.rule_id for rule in rules.rules)]
    address.restore()
    wanted = st.query_params.get("rule")
    columns = {
        "Rule": st.column_config.TextColumn(width=64, help="Click a row for its trajectories"),
        "Trajectories": st.column_config.NumberColumn(format="localized", width=100),
        "Share": st.column_config.NumberColumn(format="%.1f%%", width=72),
        "Kind": st.column_config.TextColumn(width=80),
        "Cue of the paper": st.column_config.TextColumn(width=320),
    }
    alt = "The paper's rules for code with the number and share of trajectories that fit each"
    clicks = grid.Clicks(names, lambda name: address.put({"rule": name}), wanted)
    grid.draw(frame, "rule-table", alt, columns, clicks=clicks)
    if wanted in names:
        num_hits = int(frame["Trajectories"].iloc[names.index(wanted)])
        _hits(row.run_id, wanted, num_hits, only_correct=only_correct)


def rule_table(rules: RuleTable) -> pd.DataFrame:
    """Return one row per rule, the parser first."""
    rows = [
        (PARSER, rules.num_python_blocks, 100 * rules.python_block_rate, "parser", "fence that holds Python", "parsed")
    ]
    rows += [(rule.rule_id, rule.num_texts, 100 * rule.rate, rule.kind, rule.cue, rule.form) for rule in rules.rules]
    return pd.DataFrame(rows, columns=["Rule", "Trajectories", "Share", "Kind", "Cue of the paper", "Applied as"])


_SORT_KEYS = {
    "Step": JudgedSortKey.STEP,
    "Question": JudgedSortKey.QUESTION,
    "Answer": JudgedSortKey.ANSWER,
    "Chain": JudgedSortKey.VERDICT,
    "Entropy": JudgedSortKey.ENTROPY,
}
_ANSWERS = {True: "correct", False: "not correct", None: "unknown"}


def _hit_table(rows: Sequence[RuleHit]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Id": [row.trajectory_id for row in rows],
            "Step": [row.step for row in rows],
            "Question": [row.question_index for row in rows],
            "Answer": [_ANSWERS[row.is_correct] for row in rows],
            "Chain": [VALIDITY[row.is_valid] for row in rows],
            "Entropy": [row.mean_entropy for row in rows],
            "Text": [escape_control_characters(row.snippet) for row in rows],
        }
    )


def _show_counts(rules: RuleTable) -> None:
    st.markdown(
        f"**{rules.num_any:,}** of {counted(rules.num_texts, 'trajectory')} fit at least one rule "
        f"({share(rules.any_rate)}), "
        f"**{rules.num_python_blocks:,}** hold a Python block by the parser ({share(rules.python_block_rate)})."
    )


def _hits(run_id: str, wanted: str, num_rows: int, *, only_correct: bool) -> None:
    order = long_lists.order_of_address(JudgedSortKey)
    listed = run_id, wanted, only_correct, order
    bits = None if wanted == PARSER else analyses.rules_to_bits([wanted])

    def hits(limit: int | None) -> list[RuleHit]:
        return ask(
            code_analysis.list_rule_hits, run_id, bits, only_correct=only_correct, limit=limit, order=order
        )  # fmt: skip

    rows = hits(long_lists.PAGE_SIZE * long_lists.num_pages(listed))
    st.subheader("Python block by the parser" if wanted == PARSER else f"Rule {wanted}", anchor=False)
    if not rows:
        notice.show_empty("search_off", "No trajectory matches", "Choose another rule.")
        return
    data_table.show_caption(
        f"{counted(num_rows, 'trajectory')}; a click opens one",
        lambda: _hit_table(hits(None)).assign(**{"Run id": run_id}),
        f"code-rule-{wanted}".lower(), key="code-rule-hits", formats=data_table.WHOLE_FORMATS,
    )  # fmt: skip
    columns = {
        "Text": st.column_config.TextColumn(width="large"),
        "Entropy": st.column_config.NumberColumn(format="%.4f", help="Mean token entropy at rollout, nats"),
    }
    click = grid.draw(
        _hit_table(rows), f"rule-hits-{run_id}-{wanted}", "Trajectories that fit the rule", columns, 12,
        grid.Clicks([str(row.trajectory_id) for row in rows]),
        long_lists.sorting(_SORT_KEYS, order, listed, num_rows),
    ).click  # fmt: skip
    if click is not None:
        address_choice.open_trajectory(run_id, rows[click.row].trajectory_id)
