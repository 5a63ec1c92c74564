from datetime import UTC, datetime
from functools import partial

import pytest
from sqlalchemy import select
from sqlalchemy.dialects import sqlite

from exgrpo.db.ingest import annotations
from exgrpo.db.queries import buffer, lineage, metrics, replay_concentration, retirement, runs, selections
from exgrpo.db.queries.judging import question_texts
from exgrpo.db.queries.run_filter import list_specs
from exgrpo.db.rows.runs import UnknownRunError
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo.jobs.specs.train import TrainSpec
from tests.db.conftest import on_sqlite
from tests.db.recorded_runs import ingest_run, new_run, record_attempt, register

EMPTY = [
    *((question, ("none",), []) for question in (
        runs.list_attempts, runs.list_checkpoints, metrics.list_evaluations, metrics.step_notices,
        metrics.training_seconds, buffer.bucket_grid, selections.steps_with_selections, selections.wrong_choices,
        replay_concentration.replay_concentration, replay_concentration.answer_diversity, lineage.attempts_at_question,
    )),
    *((question, ("none",), {}) for question in (metrics.last_metrics, metrics.replay_ratios)),
    *((question, ("none", 5), []) for question in (
        buffer.candidates, buffer.stored_trajectories, selections.list_selections,
    )),
    (runs.list_runs, (), []), (runs.count_runs, (), {}), (runs.get_run, ("none",), None),
    (metrics.metric_series, ("none", ["reward/mean"]), {"reward/mean": []}),
    (buffer.scores_by_bucket, ("none", 1, 3), []),
    (buffer.buffered_questions, ("none", 3, (1,)), []), (buffer.stored_candidates, ("none", 3, (1,)), []),
    (lineage.lineage, ("none", 1, 1, 1), []), (lineage.group_members, ("none", 1, 1), []),
    (lineage.get_question, ("none", 1), None), (metrics.held_out_gain, ("none",), None),
]  # fmt: skip


def test_an_empty_database_answers_every_question(database):
    for question, words, answer in EMPTY:
        assert question(database, *words) == answer, question.__name__


@pytest.mark.parametrize(
    "question",
    [
        runs.run_spec, retirement.retired_questions,
        partial(retirement.retirement_lines, rollouts_per_question=4),
    ],
)  # fmt: skip
def test_an_unknown_run_is_refused_where_an_empty_answer_would_mislead(database, question):
    with pytest.raises(UnknownRunError):
        question(database, "none")


def test_queries_take_more_ids_than_a_statement_has_parameters(recorded_run):
    database, recorded = recorded_run
    ids = ["it's 100% \\ \0", *map(str, range(70_000)), recorded]
    assert [*list_specs(database, ids)] == [recorded]
    assert {*question_texts(database, recorded, range(70_000))} == {*range(16)}


def test_no_comparison_keeps_an_index_from_a_condition_on_many_values():
    query = select(models.runs.c.spec).where(one_of(models.runs.c.run_id, ["a"]))
    assert str(query.compile(dialect=sqlite.dialect())).endswith("IN (SELECT value FROM json_each(?)))")


def test_tags_and_notes_come_and_go_and_may_be_said_twice(recorded_run):
    database, recorded = recorded_run
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for _ in range(2):
        annotations.annotate(database, "tags", recorded, {"tag": "good"})
        annotations.annotate(database, "tags", recorded, {"tag": "best"})
        annotations.withdraw(database, "tags", recorded, {"tag": "good"})
        annotations.annotate(database, "notes", recorded, {"at": at, "text": "look at step 3"})
    assert runs.get_run(database, recorded).tags == ("best",)
    assert runs.list_notes(database, recorded) == [(at, "look at step 3")]


def test_what_users_say_is_kept_whatever_characters_it_holds(database, tmp_path):
    run = new_run(tmp_path)
    register(database, run)
    recorded = run.run_id
    at = datetime(2026, 1, 1, tzinfo=UTC)
    annotations.annotate(database, "notes", recorded, {"at": at, "text": "half \ud800 pair, nul \x00"})
    annotations.annotate(database, "tags", recorded, {"tag": "odd \udfff"})
    shown = "\N{REPLACEMENT CHARACTER}"
    assert runs.list_notes(database, recorded) == [(at, f"half {shown} pair, nul {shown}")]
    assert runs.get_run(database, recorded).tags == (f"odd {shown}",)
    annotations.withdraw(database, "tags", recorded, {"tag": "odd \udfff"})
    assert runs.get_run(database, recorded).tags == ()


@pytest.mark.parametrize(
    ("num_kept", "keeps_best", "num_steps", "expected"),
    [
        (2, True, 16, {4: "best held-out score", 12: "newest", 16: "newest"}),
        (2, False, 16, {12: "newest", 16: "newest"}),
        (1, True, 12, {4: "best held-out score", 12: "newest"}),
        (3, True, 12, {4: "newest, best held-out score", 8: "newest", 12: "newest"}),
        (1, True, 24, {4: "best held-out score", 24: "newest"}),
    ],
)
@on_sqlite
def test_checkpoints_are_those_that_the_run_still_keeps(database, tmp_path, num_kept, keeps_best, num_steps, expected):
    """Held-out scores are 8, 7, 6, 5, 4 and 8 of 24 at steps 4, 8, 12, 16, 20 and 24."""
    run = new_run(tmp_path, TrainSpec(num_steps=50, num_checkpoints_kept=num_kept, keeps_best_checkpoint=keeps_best))
    record_attempt(run, range(1, num_steps + 1))
    ingest_run(database, run)
    kept = runs.list_checkpoints(database, run.run_id)
    assert {row.step: row.kept_as for row in kept} == expected
    assert [row.path for row in kept] == [f"checkpoints/step-{step:08d}" for step in expected]
