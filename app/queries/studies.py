"""The paper's studies: the runs of their cells, and the results of finished ones."""

import streamlit as st

from app import paper_and_studies, settings
from app.paper_and_studies import RunKey, Scale, StudyResults
from app.queries.answers import ask
from app.settings import AppSettings
from db.connections.session import Database
from db.rows.runs import RunRow

_KEPT_SECONDS = 60


def study_runs(name: str) -> dict[RunKey, RunRow]:
    """Return the newest run of each cell and seed of a study, at both scales."""
    return ask(_runs, name)


def read_study_results(name: str, scale: Scale, finished: tuple[str, ...]) -> StudyResults:
    """Return the results of a study's finished runs; read again when other runs have `finished`, and every minute."""
    return _kept_results(settings.current(), name, scale, finished)


@st.cache_data(ttl=_KEPT_SECONDS, show_spinner="Reading finished runs", max_entries=30)
def _kept_results(
    current: AppSettings,  # noqa: ARG001 - part of the cache key
    name: str,
    scale: Scale,
    finished: tuple[str, ...],  # noqa: ARG001 - part of the cache key
) -> StudyResults:
    return ask(_results, name, scale)


def _runs(database: Database, name: str) -> dict[RunKey, RunRow]:
    return paper_and_studies.find_runs(database, paper_and_studies.load_study(name))


def _results(database: Database, name: str, scale: Scale) -> StudyResults:
    study = paper_and_studies.load_study(name)
    return paper_and_studies.read_results(
        database, study, scale, paper_and_studies.wanted_keys(study, scale, study.cells, None)
    )
