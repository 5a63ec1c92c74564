import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from db.ingest import annotations, events
from db.queries import runs
from db.queries.run_filter import RunFilter, RunOrder, RunSortKey, method_expression, method_name
from db.queries.runs import list_run_names
from db.queries.text_search import MAX_CHARACTERS, MAX_WORDS, SearchError, split_words
from db.queries.trajectory_list import list_snippets
from db.rows.spec_fields import UNREADABLE_SPEC
from db.rows.trajectories import TrajectoryFacets
from db.tables import models
from jobs.specs.train import load_preset

BORN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PRESETS = ("paper-exgrpo", "chains-exgrpo", "paper-on-policy", "chains-grpo", "chains-masked-hard", "chains-luffy")


def register(database, run_id, name="a run", spec=None):
    info = {"run_id": run_id, "name": name, "created_at": BORN.isoformat()}
    events.register_run(database, info, spec or load_preset("chains-exgrpo").model_dump(mode="json"))


def ids(database, *arguments, **options):
    return [row.run_id for row in runs.list_runs(database, *arguments, **options)]


def by_pages(database, order, size=2):
    """Return the ids of all runs, read page by page."""
    seen = []
    while page := runs.list_runs(database, order=order, after=seen[-1] if seen else None, limit=size):
        seen += [row.run_id for row in page]
    return seen


@pytest.fixture
def filled(database):
    """Four runs, all born in the same second, listed from `d` to `a`."""
    register(database, "a", "plain")
    register(database, "b", "Second 100% run")
    register(database, "c", "100 percent", load_preset("chains-on-policy").model_dump(mode="json"))
    register(database, "d", "an evaluation", {"kind": "eval", "model": {"source": "Org/Model_7B"}})
    annotations.add_tag(database, "a", "Keep me")
    annotations.set_archived(database, "b", True)
    events.set_status(database, "a", "failed")
    return database


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ["d", "c", "a"]),
        ("PLAIN", ["a"]),
        ("chains exgrpo", ["a"]),
        ("dr.grpo", ["c"]),
        ("grpo", ["c", "a"]),
        ("evaluation org/model", ["d"]),
        ("model_7b", ["d"]),
        ("model-7b", []),
        ("100%", []),
        ("%", []),
        ("keep plain", ["a"]),
        ("keep percent", []),
    ],
)
def test_every_word_must_stand_somewhere_in_the_run(filled, words, expected):
    assert ids(filled, RunFilter(words=words)) == expected


def test_runs_that_ended_before_a_moment_are_left_out(filled):
    assert ids(filled, RunFilter(ended_after=datetime.now(UTC) - timedelta(hours=1))) == ["d", "c", "a"]
    assert ids(filled, RunFilter(ended_after=datetime.now(UTC) + timedelta(hours=1))) == ["d", "c"]


def test_states_and_archived_runs_are_chosen(filled):
    assert ids(filled, RunFilter(statuses=("failed", "lost"))) == ["a"]
    assert ids(filled, RunFilter(is_archived=True)) == ["b"]
    assert ids(filled, RunFilter(is_archived=None, words="100")) == ["c", "b"]
    archived = [row.is_archived for row in runs.list_runs(filled, RunFilter(is_archived=None))]
    assert archived == [False, False, True, False]


def test_counts_follow_the_filter(filled):
    assert runs.count_runs(filled) == {"queued": 2, "failed": 1}
    assert runs.count_runs(filled, RunFilter(is_archived=True)) == {"queued": 1}
    assert runs.count_runs(filled, RunFilter(words="grpo")) == {"queued": 1, "failed": 1}


@pytest.mark.parametrize("size", [1, 2, 10])
@pytest.mark.parametrize(
    ("key", "rising"),
    [
        ("created", "acd"),
        ("started", "acd"),
        ("name", "cda"),
        ("state", "cad"),
        ("method", "cda"),
        ("progress", "cad"),
        ("pass_at_1", "cad"),
        ("avg_at_n", "dca"),
    ],
)
def test_runs_are_sorted_by_pages_either_way_and_unknown_values_come_last(filled, key, rising, size):
    values = {
        "a": {"started_at": BORN, "step": 25, "summary": {"last_pass_at_1": 0.75}},
        "c": {"started_at": BORN + timedelta(hours=1), "step": 5, "summary": {"last_pass_at_1": 0.1}},
        "d": {"status": "finished"},
    }
    for hours, (run_id, columns) in enumerate(values.items()):
        change = update(models.runs).where(models.runs.c.run_id == run_id)
        change = change.values(created_at=BORN + timedelta(hours=hours), **columns)
        filled.write(lambda connection, change=change: connection.execute(change))
    unknown = {"started": "d", "progress": "d", "pass_at_1": "d", "avg_at_n": "dca"}.get(key, "")
    known = rising.removesuffix(unknown) if unknown != rising else ""
    assert by_pages(filled, RunOrder(RunSortKey(key), is_descending=False), size) == [*rising]
    assert by_pages(filled, RunOrder(RunSortKey(key)), size) == [*known[::-1], *unknown]


def test_names_are_those_of_the_newest_runs_that_fit(filled):
    assert list_run_names(filled, RunFilter(kinds=("train",))) == [("c", "100 percent", 0), ("a", "plain", 0)]
    assert list_run_names(filled, RunFilter(words="grpo"), limit=1) == [("c", "100 percent", 0)]
    began = update(models.runs).where(models.runs.c.run_id == "a").values(step=7)
    filled.write(lambda connection: connection.execute(began))
    assert list_run_names(filled, RunFilter(), has_steps=True) == [("a", "plain", 7)]


def test_sql_and_python_name_every_method_alike(database):
    specs = {name: load_preset(name).model_dump(mode="json") for name in PRESETS}
    specs |= {"bare": {}, "eval": {"kind": "eval"}, "judge": {"kind": "judge"}, "other": {"kind": "other"}}
    specs |= {"unreadable": UNREADABLE_SPEC, "training": {**UNREADABLE_SPEC, "kind": "train"}}
    for run_id, spec in specs.items():
        register(database, run_id, spec=spec)
    with database.read() as connection:
        named = dict(connection.execute(select(models.runs.c.run_id, method_expression())).all())
    assert named == {run_id: method_name(spec) for run_id, spec in specs.items()}
    assert [named[name] for name in PRESETS] == ["ExGRPO", "ExGRPO", "Dr.GRPO", "GRPO", "masked GRPO", "LUFFY"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("seed=3", ["three"]),
        ("seed!=3", ["seven"]),
        ("seed>=3", ["seven", "three"]),
        ("optim.learning_rate<1e-5", ["seven"]),
        ("optim.learning_rate=1e-6", ["seven"]),
        ("algorithm.normalize_by_std=true", ["three"]),
        ("optim.beta1!=5", ["seven", "three"]),
        ("name>5", []),
        ("seed>many", []),
        ("no.such=1", []),
    ],
)
def test_a_word_may_be_a_condition_on_a_field(database, words, wanted):
    spec = load_preset("chains-exgrpo").model_dump(mode="json")
    for run_id, seed, rate in (("three", 3, 0.002), ("seven", 7, 1e-6)):
        changes = {"optim": {"learning_rate": rate}, "algorithm": {"normalize_by_std": seed == 3}}
        register(database, run_id, spec=spec | {"seed": seed} | changes)
    assert sorted(ids(database, RunFilter(words))) == wanted


@pytest.mark.parametrize("words", ["w " * MAX_WORDS, "w" * MAX_CHARACTERS, ".".join("a" * 190) + "=1", "%_\\" * 100])
def test_longest_search_is_answered_and_a_longer_one_refused(filled, words):
    began_at = time.process_time()
    assert isinstance(ids(filled, RunFilter(words)), list)
    assert list_snippets(filled, TrajectoryFacets(words=words)) == []
    assert time.process_time() - began_at < 2.0
    for search in (lambda longer: ids(filled, RunFilter(longer)), split_words):
        with pytest.raises(SearchError):
            search(words + " w" * MAX_CHARACTERS)
