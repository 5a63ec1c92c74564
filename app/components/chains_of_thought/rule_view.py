"""Trajectories with code by rule and by parser: the table of rules, and the trajectories that fit one."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app import address, theme
from app.components.chains_of_thought import thought_statistics
from app.components.chains_of_thought.thought_statistics import RuleTable
from app.components.widgets import address_choice, empty_state, exports
from app.formats import VALIDITY, escape_control_characters, share
from app.queries.answers import ask
from db.queries import code_analysis
from db.rows.analysis import RuleHit

PARSER = "parser"
_KEY = "rule-table"


def show(run_id: str) -> None:
    """Show how many trajectories fit each rule; for the rule in the address also its newest trajectories."""
    counts = ask(code_analysis.rule_counts, run_id)
    if not counts:
        empty_state.show(
            "code_off", "No rules applied yet", "Older databases have no matches of code rules; rebuild the database.",
            "exgrpo db rebuild",
        )  # fmt: skip
        return
    only_correct = st.toggle("Correct answers only", key="only-correct", bind="query-params")
    rules = thought_statistics.tabulate_counts(counts, only_correct=only_correct)
    _show_counts(rules)
    frame = table(rules)
    names = [PARSER, *(rule.rule_id for rule in rules.rules)]
    address.restore()
    wanted = st.query_params.get("rule")
    address_choice.select_row(_KEY, names.index(wanted) if wanted in names else None, "Rule")
    st.dataframe(
        frame,
        key=_KEY,
        hide_index=True,
        row_height=theme.ROW_HEIGHT,
        height=theme.table_height(len(frame)),
        column_config={
            "Rule": st.column_config.TextColumn(width=64, help="Click a row for its trajectories"),
            "Trajectories": st.column_config.NumberColumn(format="localized", width=100),
            "Share": st.column_config.NumberColumn(format="%.1f%%", width=72),
            "Kind": st.column_config.TextColumn(width=80),
            "Cue of the paper": st.column_config.TextColumn(width=320),
        },
        on_select=lambda: _choose(names),
        selection_mode="single-cell",
        alt="The paper's rules for code with the number and share of trajectories that fit each",
    )
    exports.show(frame, "code-rules")
    if wanted in names:
        _hits(run_id, wanted)


def table(rules: RuleTable) -> pd.DataFrame:
    """Return one row per rule, the parser first."""
    rows = [
        (PARSER, rules.num_python_blocks, 100 * rules.python_block_rate, "parser", "fence that holds Python", "parsed")
    ]
    rows += [(rule.rule_id, rule.num_texts, 100 * rule.rate, rule.kind, rule.cue, rule.form) for rule in rules.rules]
    return pd.DataFrame(rows, columns=["Rule", "Trajectories", "Share", "Kind", "Cue of the paper", "Applied as"])


def hit_table(rows: Sequence[RuleHit]) -> pd.DataFrame:
    """Return the table of trajectories."""
    return pd.DataFrame(
        {
            "Id": [row.trajectory_id for row in rows],
            "Step": [row.step for row in rows],
            "Question": [row.question_index for row in rows],
            "Answer": ["correct" if row.is_correct else "not correct" for row in rows],
            "Chain": [VALIDITY[row.is_valid] for row in rows],
            "Entropy": [row.mean_entropy for row in rows],
            "Text": [escape_control_characters(row.snippet) for row in rows],
        }
    )


def _show_counts(rules: RuleTable) -> None:
    st.markdown(
        f"**{rules.num_any:,}** of {rules.num_texts:,} trajectories fit at least one rule ({share(rules.any_rate)}), "
        f"**{rules.num_python_blocks:,}** hold a Python block by the parser ({share(rules.python_block_rate)})."
    )


def _hits(run_id: str, wanted: str) -> None:
    rows = ask(
        code_analysis.list_rule_hits, run_id, None if wanted == PARSER else thought_statistics.rules_to_bits([wanted])
    )
    st.subheader("Python block by the parser" if wanted == PARSER else f"Rule {wanted}", anchor=False)
    if not rows:
        empty_state.show("search_off", "No trajectory matches", "Choose another rule.")
        return
    st.caption(f"The newest {len(rows):,}; a click opens one")
    frame = hit_table(rows)
    event = st.dataframe(
        frame,
        key=f"rule-hits-{run_id}-{wanted}",
        hide_index=True,
        row_height=theme.ROW_HEIGHT,
        height=theme.table_height(len(rows), 12),
        column_config={
            "Text": st.column_config.TextColumn(width="large"),
            "Entropy": st.column_config.NumberColumn(format="%.4f", help="Mean token entropy at rollout, nats"),
        },
        on_select="rerun",
        selection_mode="single-cell",
        alt="Trajectories that fit the rule, newest first",
    )
    exports.show(frame, f"code-rule-{wanted}".lower(), "code-rule-hits")
    cells = event.selection.cells
    if cells and cells[0][0] < len(rows):
        query = {"run": run_id, "trajectory": str(rows[cells[0][0]].trajectory_id)}
        st.switch_page("app_pages/trajectories.py", query_params=query)


def _choose(names: Sequence[str]) -> None:
    index = address_choice.clicked_row(_KEY, len(names))
    if index is not None:
        address.put({"rule": names[index]})
