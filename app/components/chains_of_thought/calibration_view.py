"""How far a judge can be trusted: its calibration, and its agreement with the oracle and with users."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components.chains_of_thought import thought_statistics
from app.components.chains_of_thought.thought_statistics import Calibration
from app.components.widgets import data_table
from app.formats import number, share
from app.queries.answers import ask
from db.queries import judging
from db.rows.chains_of_thought import AgreementRow
from db.statistics.intervals import Rate, wilson


def calibration_of(run_id: str, judge_run_id: str | None) -> Calibration | None:
    """Return the newest calibration of a judge's model with its prompt; the oracle needs none."""
    job = next((job for job in ask(judging.list_judge_jobs, run_id) if job.judge_run_id == judge_run_id), None)
    if job is None or not job.prompt:
        return None
    return thought_statistics.calibrate(ask(judging.calibration_votes, job.judge, job.prompt))


def show_calibration(calibration: Calibration | None) -> None:
    """Show the rates against human labels with their intervals, or how to get them."""
    st.markdown("**Calibration on labelled solutions**")
    if calibration is None:
        st.caption("None for this judge and prompt. Rates are not corrected for the judge's errors. To calibrate it:")
        st.code("exgrpo judge --labelled processbench.jsonl --server http://127.0.0.1:8000/v1", language="bash")
        return
    alt = "Sensitivity, specificity, unjudged share and flips with 95% intervals"
    data_table.show(calibration_table(calibration), "judge-calibration", alt)
    accuracy = share(calibration.accuracy)
    st.caption(f"Cohen's kappa {number(calibration.kappa)}, accuracy {accuracy}, {calibration.num_items:,} items.")


def calibration_table(calibration: Calibration) -> pd.DataFrame:
    """Return one row per rate."""
    names = {
        "sensitivity": "valid chains called valid",
        "specificity": "invalid chains called invalid",
        "unjudged": "items without a verdict",
        "flips": "items whose votes contradict each other",
    }
    rates = [getattr(calibration, name) for name in names]
    return pd.DataFrame(
        {
            "Rate": [name.capitalize() for name in names],
            "Of": list(names.values()),
            "Value": [share(rate.value) for rate in rates],
            "95% interval": [interval(rate) if rate.num_items else None for rate in rates],
            "Items": [rate.num_items for rate in rates],
        }
    )


def show_agreement(rows: Sequence[AgreementRow]) -> None:
    """Show how the judge's verdicts compare with the oracle's and with users'."""
    st.markdown("**Agreement**")
    if not rows:
        st.caption(
            "Nothing to compare with. A judge chosen above is compared with the oracle; your verdicts, under "
            "**Verdicts**, against either."
        )
        return
    alt = "Agreement of the judge with the oracle and with users: share, kappa and the four counts"
    data_table.show(agreement_table(rows), "judge-agreement", alt)


def agreement_table(rows: Sequence[AgreementRow]) -> pd.DataFrame:
    """Return one row for each source of verdicts that the judge is compared with."""
    rates = [wilson(row.num_both_valid + row.num_both_invalid, row.num_compared) for row in rows]
    return pd.DataFrame(
        {
            "With": [row.other for row in rows],
            "Compared": [row.num_compared for row in rows],
            "Agree": [share(rate.value) for rate in rates],
            "95% interval": [interval(rate) for rate in rates],
            "Kappa": [number(_kappa(row)) for row in rows],
            "Both valid": [row.num_both_valid for row in rows],
            "Valid by the judge only": [row.num_only_judge for row in rows],
            "Valid by the other only": [row.num_only_other for row in rows],
            "Both not valid": [row.num_both_invalid for row in rows],
        }
    )


def interval(rate: Rate | thought_statistics.CorrectedRate) -> str:
    """Return a rate's 95% interval in percent."""
    return f"{100 * rate.low:.1f} \N{EN DASH} {100 * rate.high:.1f}%"


def _kappa(row: AgreementRow) -> float:
    return thought_statistics.cohen_kappa(
        {
            (True, True): row.num_both_valid,
            (True, False): row.num_only_judge,
            (False, True): row.num_only_other,
            (False, False): row.num_both_invalid,
        }
    )
