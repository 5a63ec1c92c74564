"""Row 8: numbers that are none or huge, and odd characters: shown, valid JSON."""

import json
import math

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from exgrpo.app import settings
from exgrpo.app.page_list import PLACES
from exgrpo.db.connections.opening import open_database
from exgrpo.jobs.cli.main import app as command_line
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import RecordingSpec, TrainSpec
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.recorder import EvaluationRecord
from exgrpo_core.recording.run_status import RunStatus
from tests.app.conftest import MAIN_SCRIPT
from tests.db.recorded_runs import ingest_run
from tests.step_reports import make_questions, make_report

pytestmark = pytest.mark.fault_row(8)

COMMANDS = (
    "runs", "show RUN", "query curves RUN", "query buffer RUN", "query candidates RUN", "query trajectories RUN",
    "query trajectory RUN 0",
)  # fmt: skip
PAGES = [place for place in PLACES if place[0] in {"runs", "run", "compare", "system"}]


ODD_NUMBERS = (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, float(2**63))
ODD_TEXT = "nul \x00, half a pair \ud800, bidi \u202e, line \u2028, bell \x07"
NUM_STEPS = len(ODD_NUMBERS)


def odd_questions():
    questions = make_questions()
    questions[0].metadata["score"] = math.nan
    questions[1].metadata["bounds"] = [-math.inf, math.inf, {"deep": math.nan}]
    questions[2].metadata["count"] = 10**30
    questions[3].metadata[ODD_TEXT[:6]] = ODD_TEXT
    return questions


def odd_report(step):
    """Return a report in which every number that an engine or grader gives is an odd one."""
    number = ODD_NUMBERS[(step - 1) % len(ODD_NUMBERS)]
    report = make_report(step)
    report.metrics.update(dict.fromkeys(report.metrics, number))
    report.notices.append(ODD_TEXT)
    with np.errstate(over="ignore"):
        short = np.float32(number)
    for group in report.groups:
        group.advantages[:] = short
        for trajectory in group.trajectories:
            trajectory.reward = number if math.isfinite(number) else 0.0
            trajectory.text = ODD_TEXT
            trajectory.log_probs[:] = short
            trajectory.entropies[:] = short
    for selection in report.selections:
        for values in (selection.entropies, selection.nlls, selection.scores):
            values[:] = short
    return report


@pytest.fixture
def odd_run(tmp_path):
    """One attempt of odd steps and evaluations."""
    run = RunDirectory.create(tmp_path, TrainSpec(name="odd", num_steps=NUM_STEPS))
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    recorder.questions(odd_questions(), "training")
    for step in range(1, NUM_STEPS + 1):
        recorder.step(odd_report(step))
        number = ODD_NUMBERS[step - 1]
        recorder.evaluation(EvaluationRecord(step, "held_out", [ODD_TEXT, "b"], [0, 1], 8, number, number))
        folder = run.checkpoints_path / f"step-{step:08d}"
        folder.mkdir()
        recorder.checkpoint(step, folder)
    recorder.status(RunStatus.FAILED, ODD_TEXT)
    recorder.close()
    return run


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
    for name, query in PAGES:
        page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=60)
        if name not in {"runs", "system"}:
            page.query_params["runs" if name == "compare" else "run"] = odd_run.run_id
        page.query_params.update(query)
        page.switch_page(f"app_pages/{name}.py").run()
        assert not page.exception, f"{name} {query}: {page.exception}"
    figure("pages that show a run of odd numbers", f"{len(PAGES)} of {len(PAGES)}")
