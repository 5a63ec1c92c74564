"""Row 8: events doubled, reordered and replayed, a step twice, numbers that are none: stored, shown, valid JSON."""

import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from app import settings
from db.connections.opening import open_database
from db.connections.session import Database
from db.queries.metrics import metric_series
from exgrpo_core.bounded_json import seal
from jobs.cli.main import app as command_line
from jobs.recording.event_codec import decode_line, list_segments, segment_path
from jobs.recording.event_reader import EventReader
from jobs.recording.file_recorder import FileRecorder
from jobs.runs.directory import RunDirectory
from jobs.runs.report import describe_report, report_run
from jobs.specs.train import RecordingSpec
from tests.app.conftest import MAIN_SCRIPT
from tests.db.conftest import KINDS, new_database, postgres_server, postgres_template, sqlite_template  # noqa: F401
from tests.db.recorded_runs import contents_after, ingest_run, new_run, record_attempt
from tests.faults.odd_runs import NUM_STEPS, ODD_NUMBERS, record_odd_run
from tests.step_reports import make_report

pytestmark = pytest.mark.fault_row(8)

Events = list[dict[str, Any]]
COMMANDS = (
    "runs", "show RUN", "query curves RUN", "query buffer RUN", "query candidates RUN", "query trajectories RUN",
    "query trajectory RUN 0",
)  # fmt: skip
PAGES = ("runs", "run", "compare", "replay_buffer", "trajectories", "selection_audit", "snowball", "system")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, Events]:
    """A run of three attempts that resumed from the checkpoints at 4 and 6, and its events."""
    run = new_run(tmp_path_factory.mktemp("runs"))
    record_attempt(run, range(1, 10))
    record_attempt(run, range(5, 8), seed=1)
    record_attempt(run, range(7, 11), seed=2)
    return run, EventReader(run).read(max_steps=1_000).events


@pytest.fixture(scope="module")
def state_after(
    new_database: Callable[[str, Path], Database],  # noqa: F811 - the fixture
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, RunDirectory, list[Events]], dict[str, Any]]:
    """Take batches into a new database of a kind and return everything in it."""
    folder = tmp_path_factory.mktemp("databases")

    return lambda kind, run, batches: contents_after(new_database(kind, folder), run, batches)


def disturbed(events: Events, chance: random.Random) -> list[Events]:
    """Return the events in random batches and order, many of them twice and some batches offered again."""
    offered = events + chance.choices(events, k=chance.randrange(len(events)))
    chance.shuffle(offered)
    cuts = sorted(chance.choices(range(len(offered)), k=chance.randrange(9)))
    batches = [offered[start:end] for start, end in itertools.pairwise([0, *cuts, len(offered)])]
    return batches + chance.choices(batches, k=2)


@pytest.mark.parametrize("kind", KINDS)
def test_events_doubled_reordered_and_replayed_give_the_same_state(kind, resumed, state_after, is_long, figure):
    run, events = resumed
    expected = state_after(kind, run, [events])
    chance, num_orders = random.Random(8), 25 if is_long else 2
    same = sum(state_after(kind, run, disturbed(events, chance)) == expected for _ in range(num_orders))
    figure(f"orders with the same state in {kind}", f"{same} of {num_orders}")
    assert same == num_orders


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_twice_counts_once_and_no_two_records_are_mixed(kind, tmp_path, state_after, figure):
    run = new_run(tmp_path)
    record_attempt(run, [1, 2, 3])
    events = _events(run)
    expected = _steps(state_after(kind, run, [events]))
    again = [_differing(event, 100 + event["seq"]) for event in events if event["kind"] == "step"]
    for batches in ([events + again], [[event] for event in events + again], [events, again, again, events]):
        assert _steps(state_after(kind, run, batches)) == expected
    figure(f"a step twice in {kind}", "counts once")


def _differing(event: dict[str, Any], seq: int) -> dict[str, Any]:
    """Return another record of a step, with other numbers and with rows that the first has not."""
    trajectories = [row | {"trajectory_id": row["trajectory_id"] + 1_000} for row in event["trajectories"]]
    metrics = event["metrics"] | {"reward/mean": -1.0, "loss/total": 9.0}
    return event | {"seq": seq, "metrics": metrics, "trajectories": trajectories}


def test_of_a_step_recorded_twice_the_first_record_stays(tmp_path):
    run = new_run(tmp_path)
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.step(make_report(1))
    recorder.settle()
    first = _events(run)
    recorder.step(make_report(1, seed=5))
    recorder.close()
    assert _events(run) == first


def _events(run: RunDirectory) -> Events:
    return EventReader(run).read(max_steps=1_000).events


def _steps(found: dict[str, Any]) -> dict[str, Any]:
    names = (
        "steps",
        "metrics",
        "trajectories",
        "trajectory_texts",
        "buffer_changes",
        "candidates",
        "trajectory_blocks",
    )
    return {name: found[name] for name in names}


@pytest.fixture
def odd_run(tmp_path: Path) -> RunDirectory:
    return record_odd_run(tmp_path)


def test_every_line_that_was_recorded_is_valid_json(odd_run, figure):
    lines = [
        line
        for number in list_segments(odd_run.attempt_path(1))
        for line in segment_path(odd_run.attempt_path(1), number).read_bytes().splitlines()
    ]
    assert len(lines) == 3 + 3 * NUM_STEPS
    assert all(decode_line(line) is not None for line in lines)
    for line in lines:
        json.loads(line, parse_constant=pytest.fail)
    figure("lines of the record that are valid JSON", f"{len(lines)} of {len(lines)}")


@pytest.mark.parametrize("kind", KINDS)
def test_odd_numbers_and_characters_are_stored_and_come_back(kind, new_database, tmp_path, odd_run):  # noqa: F811
    database = new_database(kind, tmp_path)
    assert ingest_run(database, odd_run) == 3 + 3 * NUM_STEPS
    points = metric_series(database, odd_run.run_id, ["loss/total", "reward/mean"])["reward/mean"]
    # SQLite stores whole numbers without the sign of zero.
    assert [repr(point.value + 0.0) for point in points] == [repr(number + 0.0) for number in ODD_NUMBERS]
    report = report_run(database, odd_run.run_id)
    database.close()
    assert "not_finite" not in report["health"]
    assert describe_report(report).startswith(odd_run.run_id)
    assert "memory" not in describe_report(report | {"peak_memory": 0})
    assert describe_report(report | {"peak_memory": 2e9}).endswith("; peak memory 2.00 GB")
    json.dumps(report)


def test_what_commands_print_of_odd_numbers_is_valid_json(odd_run, figure):
    num_valid = 0
    for command in COMMANDS:
        words = [odd_run.run_id if word == "RUN" else word for word in command.split()]
        for options in (["--json"], []):
            result = CliRunner().invoke(command_line, [*words, *options, "--runs-root", str(odd_run.path.parent)])
            assert result.exit_code == 0, f"{command}: {result.output}"
            if options:
                json.loads(result.stdout, parse_constant=pytest.fail)
        num_valid += 1
    figure("commands whose JSON of odd numbers is valid", f"{num_valid} of {len(COMMANDS)}")


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # charts draw what float32 cannot hold as infinite
def test_pages_show_a_run_of_odd_numbers(odd_run, figure):
    runs_root = odd_run.path.parent
    database = open_database(None, runs_root)
    ingest_run(database, odd_run)
    database.close()
    settings.configure(settings.AppSettings(runs_root))
    for name in PAGES:
        page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=60)
        if name not in {"runs", "system"}:
            page.query_params["runs" if name == "compare" else "run"] = odd_run.run_id
        page.switch_page(f"app_pages/{name}.py").run()
        assert not page.exception, f"{name}: {page.exception}"
    figure("pages that show a run of odd numbers", f"{len(PAGES)} of {len(PAGES)}")


def test_a_specification_with_an_infinite_number_hides_no_other_run(tmp_path):
    odd, plain = new_run(tmp_path, run_id="odd"), new_run(tmp_path, run_id="plain")
    spec = odd.spec().model_dump(mode="json")
    spec["optim"]["learning_rate"] = math.inf
    odd.info_path.write_bytes(seal(json.dumps(odd.read_run_info()).encode()))
    odd.spec_path.write_text(json.dumps(spec))
    result = CliRunner().invoke(command_line, ["runs", "--json", "--runs-root", str(tmp_path)])
    assert {row["run_id"] for row in json.loads(result.stdout)} == {"odd", plain.run_id}
