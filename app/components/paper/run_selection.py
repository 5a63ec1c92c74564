"""Which runs are shown next to the paper: the demo's, those that the reader chooses, a study's, or none."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import streamlit as st

from exgrpo.app.components.paper.entries import Entry
from exgrpo.app.components.widgets import run_choice
from exgrpo.app.queries.benchmarks import study_runs
from exgrpo.app.queries.runs import TRAINING_RUNS, list_runs
from exgrpo.db.rows.display_names import distinct_names
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions.run_actions import DEMO_TAG
from exgrpo.jobs.actions.studies.definition import Scale
from exgrpo_core.recording.run_status import RunStatus

PRINTED, DEMO, CHOSEN, STUDY = "printed", "demo", "chosen", "study"
_KINDS = {
    DEMO: ("Demo", f"The newest runs that `make demo` trained, with the tag `{DEMO_TAG}`, finished ones first"),
    CHOSEN: ("Chosen runs", "Runs of your choice, kept in the address"),
    STUDY: ("The study's runs", "One finished run of each cell of the study that this figure belongs to"),
    PRINTED: ("Printed numbers", "Only what the paper prints"),
}
_MAX_STUDY_RUNS = 12
REPLAYING = "ExGRPO"


@dataclass(frozen=True, slots=True)
class RunSelection:
    """The runs of a selection by id, each with the name to show."""

    kind: str
    rows: Mapping[str, RunRow]
    names: Mapping[str, str]

    @property
    def first(self) -> RunRow | None:
        """The run of drawings that show one run only: the first that replays, else the first."""
        rows = list(self.rows.values())
        return next((row for row in rows if row.method == REPLAYING), rows[0] if rows else None)


def show(entry: Entry | None) -> RunSelection:
    """Show the choice and return it; a study's runs are offered where `entry` belongs to one."""
    kinds = [kind for kind in _KINDS if kind != STUDY or (entry is not None and entry.study)]
    kind = st.segmented_control(
        "Next to the paper", kinds, format_func=lambda kind: _KINDS[kind][0], default=DEMO, required=True, key="beside",
        bind="query-params", help=" \n\n".join("**{}**: {}".format(*_KINDS[kind]) for kind in kinds),
    )  # fmt: skip
    if kind == CHOSEN:
        chosen = run_choice.choose_compared()
        rows = {run_id: row for run_id, (row, _) in chosen.items()}
        return RunSelection(kind, rows, {run_id: name for run_id, (_, name) in chosen.items()})
    found = demo_rows() if kind == DEMO else []
    if kind == STUDY and entry is not None:
        found = _study_rows(entry.study)
    names = distinct_names((row.run_id, row.name) for row in found)
    return RunSelection(kind, {row.run_id: row for row in found}, names)


def demo_rows() -> list[RunRow]:
    """Return the newest finished run of each method that a demo trained, else the newest with a step; ExGRPO first."""
    tagged = list_runs(replace(TRAINING_RUNS, words=f"tag={DEMO_TAG}"))
    by_method: dict[str, RunRow] = {}
    for row in sorted(tagged, key=lambda row: row.status != RunStatus.FINISHED):
        if row.step and not row.is_fine_tuning:
            by_method.setdefault(row.method, row)
    return sorted(by_method.values(), key=lambda row: row.method != REPLAYING)


def _study_rows(name: str) -> list[RunRow]:
    by_cell: dict[str, RunRow] = {}
    for key, row in sorted(study_runs(name).items(), key=lambda item: (item[0].scale != Scale.PAPER, item[0].seed)):
        if row.status == RunStatus.FINISHED:
            by_cell.setdefault(key.cell, row)
    return list(by_cell.values())[:_MAX_STUDY_RUNS]
