"""Queries have the same answers on SQLite and PostgreSQL, whose numbers tests/numbers derives from files."""

from contextlib import ExitStack, closing
from dataclasses import asdict, is_dataclass

import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries import (
    buffer,
    cases,
    code_analysis,
    judging,
    lineage,
    metrics,
    recorded_steps,
    replay_concentration,
    retirement,
    runs,
    selections,
    trajectory_list,
)
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.queries import calls
from exgrpo.jobs.queries.table import QUERIES
from tests.app import played
from tests.faults import used_workbench
from tests.postgres import create_postgres_database

pytestmark = pytest.mark.slow

PLAYED, CHAINS = played.FINISHED.run_id, "trained"
VALUES = {"run_id": PLAYED, "trajectory_id": 5, "mark": "odd", "first": "scored", "second": "scored"}
OF_OTHERS = {"judges": {"run": CHAINS}, **{name: {"run_id": CHAINS} for name in ("verdicts", "analysis", "code")}}
WITHOUT_DATABASE = {"benchmarks", "journal", "presets", "score-curves", "studies", "study-numbers"}
OF_PAGES = [
    (recorded_steps.step_trajectories, PLAYED, 10), (buffer.bucket_grid, PLAYED),
    (buffer.scores_by_bucket, PLAYED, 5, 14),
    (buffer.count_other_questions, PLAYED, CHAINS), (buffer.buffered_questions, PLAYED, 10, (1, 2, 3)),
    (cases.sets_of_run, CHAINS), (cases.saved_cases, "kept"),
    (code_analysis.code_lines, CHAINS), (code_analysis.code_lines, CHAINS, "judged"),
    (code_analysis.entropy_points, CHAINS), (code_analysis.group_rates, CHAINS),
    *((code_analysis.share_timeline, name, kind) for name in (PLAYED, CHAINS) for kind in code_analysis.Spreading),
    (judging.count_verdicts, CHAINS, "judged"),
    (judging.list_votes, CHAINS, 0), (lineage.attempts_at_question, "q1"), (lineage.group_members, PLAYED, 5, 1),
    (metrics.clock_seconds, PLAYED), (metrics.replay_ratios, PLAYED), (metrics.held_out_gain, "resumed"),
    (replay_concentration.answer_diversity, PLAYED), (retirement.retirement_lines, PLAYED, 4), (runs.count_runs,),
    (selections.steps_with_trajectories, PLAYED), (trajectory_list.count_facets, TrajectoryFacets()),
    (trajectory_list.count_facets, TrajectoryFacets(PLAYED, "so")),
]  # fmt: skip


@pytest.fixture(scope="module")
def databases(postgres_server, tmp_path_factory):
    """The root of runs of every kind, and its index on SQLite and on PostgreSQL."""
    root = tmp_path_factory.mktemp("both") / "runs"
    used_workbench.make(root, 0)
    played.play(root, played.FINISHED)
    with ExitStack() as stack:
        made = []
        for url in (None, create_postgres_database(postgres_server)):
            assert ingest_all(root, url)
            made.append(stack.enter_context(closing(open_database(url, root))))
        yield root, made


def plain(value):
    """What can be compared: floats as far as sums in another order agree, and NaN as a word."""
    if is_dataclass(value):
        value = asdict(value)
    if isinstance(value, dict):
        return {repr(key): plain(item) for key, item in value.items() if key != "trajectory_key"}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in (sorted(value) if isinstance(value, set) else value)]
    return f"{value:.9g}" if isinstance(value, float) else value


@pytest.mark.parametrize("name", sorted({*QUERIES} - WITHOUT_DATABASE))
def test_a_query_of_the_table_has_one_answer(databases, name):
    root, made = databases
    values = VALUES | OF_OTHERS.get(name, {})
    given = {key: values[key] for key in calls.parameters(QUERIES[name]) if key in values}
    answers = [plain(calls.call(QUERIES, name, given, database, root)) for database in made]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("asked", OF_PAGES, ids=lambda asked: asked[0].__name__)
def test_a_query_of_pages_has_one_answer(databases, asked):
    query, *words = asked
    answers = [plain(query(database, *words)) for database in databases[1]]
    assert answers[0] == answers[1]
    assert answers[0]
