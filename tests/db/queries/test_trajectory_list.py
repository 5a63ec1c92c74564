import pytest

from db.queries import trajectory_list
from db.rows.trajectories import TrajectoryFacets
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from jobs.runs.control import RunStatus
from tests.db.conftest import KINDS
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.step_reports import make_report

NUM_STEPS = 8


def store_first_correct(report):
    """Say of one correct trajectory a step, and of nothing else, that it was stored, in bucket 3."""
    report.buffer_events = []
    fresh = [item for group in report.groups for item in group.trajectories if item.reward == 1.0]
    if fresh:
        index, number = fresh[0].question_index, fresh[0].trajectory_id
        report.buffer_events.append(BufferEvent(BufferEventKind.INSERTED, index, number, 3, 3))


@pytest.fixture(scope="module", params=KINDS)
def two_runs(request, new_database, tmp_path_factory):
    """A database with two runs, and their ids; the second one is newer."""
    folder = tmp_path_factory.mktemp("listed")
    database, snippets = new_database(request.param, folder), []
    for name in ("first", "second"):
        run = new_run(folder, run_id=name)
        record_attempt(run, range(1, NUM_STEPS + 1), end=RunStatus.FINISHED, change=store_first_correct)
        ingest_run(database, run)
        snippets.append(name)
    yield database, snippets
    database.close()


def recorded(run_id="first"):
    rows = []
    for step in range(1, NUM_STEPS + 1):
        rows += [(run_id, item) for group in make_report(step).groups for item in group.trajectories]
    return rows


def ids(rows):
    return [(row.run_id, row.trajectory_id) for row in rows]


def expected_ids(holds, runs=("first",)):
    kept = [(run, item.trajectory_id) for run in runs for _, item in recorded(run) if holds(item)]
    return sorted(kept, key=lambda key: (runs.index(key[0]), key[1]), reverse=True)


def mean_entropy(item):
    return float(item.entropies.mean())


@pytest.mark.parametrize(
    ("facets", "holds"),
    [
        ({}, lambda item: True),  # noqa: ARG005 - every trajectory passes
        ({"step_from": 3, "step_to": 5}, lambda item: 3 <= item.rollout_step <= 5),
        ({"question_index": 2}, lambda item: item.question_index == 2),
        ({"is_correct": True}, lambda item: item.reward == 1.0),
        ({"is_correct": False}, lambda item: item.reward < 1.0),
        ({"verdict": "wrong"}, lambda item: item.verdict == "wrong"),
        (
            {"verdict": "wrong", "step_from": 3, "step_to": 3},
            lambda item: item.verdict == "wrong" and item.rollout_step == 3,
        ),
        ({"is_valid": False}, lambda item: not item.is_valid),
        ({"has_code": True}, lambda item: False),  # noqa: ARG005 - nothing was looked for
        ({"tokens_from": 4, "tokens_to": 9}, lambda item: 4 <= item.token_ids.size <= 9),
        ({"entropy_to": 0.5}, lambda item: mean_entropy(item) <= 0.5),
        ({"words": "step5 says"}, lambda item: item.rollout_step == 5),
        ({"words": "step5", "is_correct": False}, lambda item: item.rollout_step == 5 and item.reward < 1),
        ({"words": "!?"}, lambda item: False),  # noqa: ARG005 - no word in it
    ],
)
def test_what_is_listed_and_counted_is_what_was_recorded(two_runs, facets, holds):
    database, _ = two_runs
    where = TrajectoryFacets(run_id="first", **facets)
    snippets = trajectory_list.list_snippets(database, where, limit=500)
    assert ids(snippets) == expected_ids(holds)
    assert trajectory_list.count_trajectories(database, where) == len(snippets)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("number7", {7}),
        ("NUMBER7 step1", {7}),
        ("number7 step2", set()),
        ("says number7", {7}),
        ('number7" OR "number8', set()),
        ("text:number7 NEAR -x*", set()),
        ("\\boxed{4} step1", {0, 1, 2}),
        ("***", set()),
    ],
)
def test_search_finds_texts_that_hold_every_word(two_runs, words, expected):
    database, _ = two_runs
    rows = trajectory_list.list_snippets(database, TrajectoryFacets("first", words))
    assert {row.trajectory_id for row in rows} == expected


def test_search_takes_one_run_or_all_and_the_newest_first(two_runs):
    database, _ = two_runs
    assert ids(trajectory_list.list_snippets(database, TrajectoryFacets(words="number3"))) == [
        ("second", 3),
        ("first", 3),
    ]
    assert ids(trajectory_list.list_snippets(database, TrajectoryFacets("first", "number3"))) == [("first", 3)]
    newest = trajectory_list.list_snippets(database, TrajectoryFacets("first", "trajectory"), limit=2)
    assert ids(newest) == expected_ids(lambda item: True)[:2]  # noqa: ARG005 - every trajectory passes


def test_replayed_and_stored_ones_are_found(two_runs):
    database, _ = two_runs
    drawn = {
        group.replays[0].experience.trajectory_id
        for step in range(1, NUM_STEPS + 1)
        for group in make_report(step).groups
        if group.replays
    }
    fresh = {item.trajectory_id for _, item in recorded()}
    snippets = trajectory_list.list_snippets(database, TrajectoryFacets(run_id="first", is_replayed=True), limit=500)
    assert {row.trajectory_id for row in snippets} == drawn & fresh
    assert all(row.num_replays > 0 for row in snippets)
    firsts = set()
    for step in range(1, NUM_STEPS + 1):
        correct = [i for group in make_report(step).groups for i in group.trajectories if i.reward == 1.0]
        firsts |= {item.trajectory_id for item in correct[:1]}
    stored = trajectory_list.list_snippets(database, TrajectoryFacets(run_id="first", bucket=3), limit=500)
    assert {row.trajectory_id for row in stored} == firsts
    assert trajectory_list.count_trajectories(database, TrajectoryFacets(run_id="first", bucket=7)) == 0


@pytest.mark.parametrize("words", ["", "trajectory"])
def test_pages_over_all_runs_go_through_everything_once_newest_first(two_runs, words):
    database, runs = two_runs
    where, snippets, before = TrajectoryFacets(words=words), [], None
    while page := trajectory_list.list_snippets(database, where, before=before, limit=7):
        snippets += page
        before = page[-1].trajectory_key
    assert ids(snippets) == expected_ids(lambda item: True, runs)  # noqa: ARG005 - every trajectory passes


def test_a_page_is_filled_from_far_below_the_newest_ones_with_the_words(two_runs, monkeypatch):
    database, _ = two_runs
    monkeypatch.setattr(trajectory_list, "FEW_NEWEST", 1)
    monkeypatch.setattr(trajectory_list, "NUM_NEWEST", 2)
    where = TrajectoryFacets(run_id="first", words="trajectory", step_to=3)
    snippets = trajectory_list.list_snippets(database, where, limit=3)
    assert ids(snippets) == expected_ids(lambda item: item.rollout_step <= 3)[:3]


def test_counts_of_words_stop_at_the_bound_and_others_are_exact(two_runs, monkeypatch):
    database, runs = two_runs
    monkeypatch.setattr(trajectory_list, "MAX_COUNT", 10)
    num_all = len(expected_ids(lambda item: True, runs))  # noqa: ARG005 - every trajectory passes
    assert trajectory_list.count_trajectories(database, TrajectoryFacets()) == num_all > 11
    assert sum(trajectory_list.count_facets(database, TrajectoryFacets())["is_correct"].values()) == num_all
    assert trajectory_list.count_trajectories(database, TrajectoryFacets(words="trajectory")) == 11


def test_facet_counts_replace_what_is_chosen_there_and_keep_the_rest(two_runs):
    database, _ = two_runs
    counts = trajectory_list.count_facets(database, TrajectoryFacets(run_id="first", is_correct=True, step_to=4))
    early = [item for _, item in recorded() if item.rollout_step <= 4]
    assert counts["is_correct"] == {
        True: sum(item.reward == 1.0 for item in early),
        False: sum(item.reward == 0.0 for item in early),
    }
    assert counts["verdict"]["wrong"] == 0
    assert counts["has_code"][True] == 0


def test_unknown_run_has_no_trajectories(two_runs):
    database, _ = two_runs
    where = TrajectoryFacets(run_id="none", words="step1")
    assert trajectory_list.list_snippets(database, where) == []
    assert trajectory_list.count_trajectories(database, where) == 0


def test_snippet_is_one_line_around_the_first_word_found():
    text = "begin " + "filler\n" * 100 + "needle end"
    assert trajectory_list.snippet_of(text, "").startswith("begin filler filler")
    assert trajectory_list.snippet_of(text, "").endswith("…")
    assert trajectory_list.snippet_of(text, "NEEDLE").endswith("needle end")
    assert trajectory_list.snippet_of("short", "nothing") == "short"


def test_a_run_with_external_replays_is_taken_in_and_they_replay_no_trajectory_of_its_own(database, tmp_path):
    external = Step({1: [Response()], 2: [Response()]}, replayed={1: (-2, 0), 2: (0, 1)})
    ingest_run(database, record_steps(tmp_path, [Step({1: [Response(), Response()]}), external]))
    of_run = TrajectoryFacets(run_id="trained")
    replayed = trajectory_list.list_snippets(database, TrajectoryFacets(run_id="trained", is_replayed=True))
    assert [row.trajectory_id for row in replayed] == [0]
    assert trajectory_list.count_trajectories(database, of_run) == 4
