import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from exgrpo.db.ingest import events as ingest
from exgrpo.db.ingest.events import read_position
from exgrpo.db.queries.metrics import list_evaluations, metric_series
from exgrpo.db.queries.runs import get_run, list_attempts, list_checkpoints, run_spec
from exgrpo.db.queries.trajectory_list import list_snippets
from exgrpo.db.rows.runs import UnknownRunError
from exgrpo.db.rows.spec_fields import UNREADABLE_SPEC
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.recording.run_status import RunStatus
from tests.db import recorded_runs
from tests.db.conftest import KINDS, on_sqlite
from tests.db.recorded_runs import ingest_run, new_run, record_attempt, register
from tests.db.table_contents import contents

pytestmark = [pytest.mark.slow, pytest.mark.whole]

LAST_MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """A run of three attempts: 1 to 9, then 5 to 7 from the checkpoint at 4, then 7 to 10, and all its events."""
    run = new_run(tmp_path_factory.mktemp("runs"))
    record_attempt(run, range(1, 10))
    record_attempt(run, range(5, 8), seed=1, end=RunStatus.STOPPED)
    record_attempt(run, range(7, 11), seed=2, end=RunStatus.FINISHED)
    batch = EventReader(run).read(max_steps=1_000)
    return run, batch.events, batch.position


@pytest.fixture(scope="module")
def contents_after(new_database, tmp_path_factory):
    folder = tmp_path_factory.mktemp("databases")

    return lambda kind, run, batches: recorded_runs.contents_after(new_database(kind, folder), run, batches)


def test_taking_in_twice_changes_nothing(database, resumed):
    run, events, position = resumed
    register(database, run)
    assert ingest.ingest_events(database, run.run_id, events, position) == len(events)
    before = contents(database)
    assert ingest.ingest_events(database, run.run_id, events, position) == 0
    register(database, run)
    assert contents(database) == before
    assert read_position(database, ingest.run_source(run.run_id)) == position


@pytest.mark.parametrize("kind", KINDS)
def test_events_doubled_and_reordered_in_any_batches_give_the_same_database(resumed, contents_after, kind):
    run, events, _ = resumed
    expected = contents_after("sqlite", run, [events])
    assert contents_after(kind, run, [[event] for event in reversed(events)]) == expected
    chance = random.Random(8)
    for _ in range(3):
        offered = events + chance.choices(events, k=chance.randrange(len(events)))
        chance.shuffle(offered)
        cuts = sorted(chance.choices(range(len(offered)), k=chance.randrange(9)))
        batches = [offered[start:end] for start, end in pairwise([0, *cuts, len(offered)])]
        assert contents_after(kind, run, batches) == expected


@pytest.mark.parametrize("seconds_back", [0, 3600])
@on_sqlite
def test_an_attempt_began_with_its_first_event_also_if_its_clock_was_set_back(database, resumed, seconds_back):
    run, events, _ = resumed
    moments = [datetime.fromisoformat(event["at"]) for event in events]
    moments = [moment - timedelta(seconds=seconds_back * (place > 2)) for place, moment in enumerate(moments)]
    register(database, run)
    for event, moment in zip(events, moments, strict=True):
        ingest.ingest_events(database, run.run_id, [event | {"at": moment.isoformat()}])
    numbers = [event["attempt"] for event in events]
    expected = [moments[numbers.index(number)] for number in (1, 2, 3)]
    assert [row.started_at for row in list_attempts(database, run.run_id)] == expected
    assert get_run(database, run.run_id).started_at == expected[0]


def test_steps_that_a_resumed_attempt_did_again_count_once(database, resumed):
    run, events, _ = resumed
    register(database, run)
    ingest.ingest_events(database, run.run_id, events)
    points = metric_series(database, run.run_id, ["seconds/step"])["seconds/step"]
    assert [point.step for point in points] == list(range(1, 11))
    listed = list_snippets(database, TrajectoryFacets(run.run_id), limit=1_000)
    rows = contents(database)
    by_step = {step: {row.text for row in listed if row.step == step} for step in range(1, 11)}
    assert len(listed) == len({row.trajectory_id for row in listed}) == sum(map(len, by_step.values()))
    # Steps 5 to 9 of the first attempt and 7 of the second were done again: each step is there once.
    assert len(rows["trajectories"]) == len(rows["trajectory_texts"]) == len(listed)
    assert len(rows["steps"]) == len(by_step)
    assert [row.resumed_from_step for row in list_attempts(database, run.run_id)] == [None, 4, 6]


def test_an_attempt_from_the_start_replaces_all_steps_and_repeats_the_first_evaluation(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 6))
    record_attempt(run, range(1, 5), seed=1)
    ingest_run(database, run)
    points = metric_series(database, run.run_id, ["seconds/step"])["seconds/step"]
    assert [point.step for point in points] == [1, 2, 3, 4]
    assert [row.step for row in list_evaluations(database, run.run_id)] == [4]
    assert [row.step for row in list_checkpoints(database, run.run_id)] == [4]


@pytest.mark.parametrize(
    ("field", "change"), [("metrics", None), ("questions", {"answer": None}), ("selections", {"chosen": [-1]})]
)
def test_a_batch_that_fails_leaves_nothing_and_names_the_event(database, resumed, field, change):
    run, events, position = resumed
    register(database, run)
    index = next(index for index, event in enumerate(events) if event.get(field))
    damaged = {key: value for key, value in events[index].items() if key != field or change}
    if change:
        damaged[field] = [item | change for item in damaged[field]]
    before = contents(database)
    with pytest.raises(ingest.IngestError, match=f"{run.run_id}, attempt 1, event {events[index]['seq']}: "):
        ingest.ingest_events(database, run.run_id, [*events[:index], damaged], position)
    assert contents(database) == before


def test_a_run_that_was_not_registered_is_refused(database, resumed):
    run, events, _ = resumed
    with pytest.raises(UnknownRunError):
        ingest.ingest_events(database, run.run_id, events)
    with pytest.raises(UnknownRunError):
        ingest.set_status(database, "nothing", "running")


def test_events_move_the_status_forward_and_never_back(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 3), end=RunStatus.FAILED)
    events = EventReader(run).read().events
    register(database, run)
    assert get_run(database, run.run_id).status == "queued"
    ingest.ingest_events(database, run.run_id, events[:3])
    assert get_run(database, run.run_id).status == "running"
    ingest.set_status(database, run.run_id, "stopping")
    ingest.ingest_events(database, run.run_id, events[3:4])
    assert get_run(database, run.run_id).status == "stopping"
    ingest.ingest_events(database, run.run_id, events)
    row = get_run(database, run.run_id)
    assert (row.status, row.status_reason, row.attempt) == ("failed", "a reason", 1)
    assert row.ended_at == datetime.fromisoformat(events[-1]["at"])
    assert row.started_at == datetime.fromisoformat(events[0]["at"])


def test_the_supervisor_has_the_last_word_on_the_status(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 3))
    ingest_run(database, run)
    ingest.set_status(database, run.run_id, "lost", "It is gone.", attempt=1, at=LAST_MOMENT)
    row = get_run(database, run.run_id)
    assert (row.status, row.status_reason, row.ended_at) == ("lost", "It is gone.", LAST_MOMENT)
    (attempt,) = list_attempts(database, run.run_id)
    assert (attempt.status, attempt.status_reason, attempt.ended_at) == ("lost", "It is gone.", LAST_MOMENT)
    assert attempt.started_at == row.started_at < LAST_MOMENT
    ingest.set_status(database, run.run_id, "lost")
    assert get_run(database, run.run_id).ended_at == LAST_MOMENT
    ingest.set_status(database, run.run_id, "queued")
    assert get_run(database, run.run_id).ended_at is None


def test_an_end_that_the_supervisor_told_is_replaced_by_no_later_event(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 3), end=RunStatus.FAILED)
    events = EventReader(run).read().events
    register(database, run)
    ingest.ingest_events(database, run.run_id, events[:3])
    ingest.set_status(database, run.run_id, "lost", "It is gone.")
    ingest.ingest_events(database, run.run_id, events)
    row = get_run(database, run.run_id)
    assert (row.status, row.status_reason) == ("lost", "It is gone.")


def test_an_attempt_is_known_before_its_first_event(database, tmp_path):
    run = new_run(tmp_path)
    register(database, run)
    ingest.set_status(database, run.run_id, "starting", attempt=1)
    row = get_run(database, run.run_id)
    assert (row.status, row.attempt, row.started_at) == ("starting", 1, None)


def test_kind_and_rollouts_of_a_run_without_its_specification_are_those_of_its_records(database, resumed):
    run, events, _ = resumed
    ingest.register_run(database, run.read_run_info(), UNREADABLE_SPEC, [Fault(FaultKind.UNREADABLE, "spec.json")])
    assert get_run(database, run.run_id).kind == "unreadable"
    ingest.ingest_events(database, run.run_id, events)
    row = get_run(database, run.run_id)
    assert (row.kind, row.method, row.has_settings) == ("train", "unknown", False)
    assert run_spec(database, run.run_id)["algorithm"] == {"rollouts_per_question": 3}
    register(database, run)
    assert get_run(database, run.run_id).has_settings
    assert run_spec(database, run.run_id) == run.spec().model_dump(mode="json")
