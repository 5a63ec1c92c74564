"""Scores of benchmarks, two scored models compared, and the results of studies."""

import time
from collections.abc import Mapping

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.queries.answers import ask, kept
from exgrpo.db.connections.session import Database
from exgrpo.db.queries import benchmarks
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.runs import list_runs
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.scores import BenchmarkScoreRow, ComparisonRow, ScoredRuns
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, Study, wanted_keys
from exgrpo.jobs.actions.studies.measures import AVERAGES
from exgrpo.jobs.actions.studies.study_results import StudyResults, find_runs, key_of, read_results
from exgrpo.jobs.actions.studies.sweeps import find_study

MAX_SCORES = 5000
_MAX_TAGGED = 200
_STUDY_SECONDS = 60


def list_scores(scheme: str) -> list[BenchmarkScoreRow]:
    """Return the newest scores by a scheme."""
    return ask(benchmarks.list_scores, scheme=scheme, limit=MAX_SCORES)


def compare_scores(first: ScoredRuns, second: ScoredRuns, scheme: str) -> list[ComparisonRow]:
    """Return the differences of two scored models, second minus first; scores do not change, so answers are kept."""
    return kept(ask, benchmarks.compare_scores, first, second, scheme, tuple(AVERAGES.items()))


def study_runs(name: str) -> dict[RunKey, RunRow]:
    """Return the newest run of each cell and seed of a study, at both scales."""
    return ask(_runs, name)


def newest_of_studies(studies: Mapping[str, Study]) -> RunKey | None:
    """Return which run of any of these studies is the newest, None where none has a run."""
    tagged = ask(list_runs, RunFilter(words="tag:study:"), limit=_MAX_TAGGED)
    keys = (key for key in map(key_of, tagged) if key is not None and key.study in studies)
    return next((key for key in keys if key.scale in studies[key.study].scales), None)


def read_study_results(name: str, scale: Scale, finished: tuple[str, ...]) -> StudyResults:
    """Return the results of a study's finished runs; read again when other runs have `finished`, and every minute."""
    with st.spinner("Reading finished runs", show_time=False):
        until = (finished, time.monotonic() // _STUDY_SECONDS)
        results: StudyResults = kept(ask, _results, name, scale, until=until)
        return results


def _runs(database: Database, name: str) -> dict[RunKey, RunRow]:
    return find_runs(database, find_study(settings.current().runs_root, name))


def _results(database: Database, name: str, scale: Scale) -> StudyResults:
    study = find_study(settings.current().runs_root, name)
    return read_results(database, study, scale, wanted_keys(study, scale, study.cells, None))
