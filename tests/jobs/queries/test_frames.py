import pandas
import pytest

from exgrpo.jobs.queries.frames import open_run
from exgrpo.jobs.runs.directory import RunDirectoryError
from tests.app import played
from tests.records import lines_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    played.play(root, played.FINISHED)
    return root / "play-finished"


def test_frames_hold_what_the_files_hold(run):
    steps = lines_of(run, "step")
    frames = open_run(run)
    fresh = pandas.DataFrame(lines_of(run, "trajectory")).sort_values("trajectory_id")
    trajectories = frames.trajectories().sort_values("trajectory_id")
    for column in ("trajectory_id", "step", "question_index", "num_tokens", "text", "verdict"):
        assert list(trajectories[column]) == list(fresh[column])
    assert len(frames.replays()) == len(lines_of(run, "replay"))
    metrics = frames.metrics()
    assert list(metrics["reward/mean"]) == [step["metrics"]["reward/mean"] for step in steps]
    assert len(frames.buffer()) == sum(len(step["buffer_events"]) for step in steps)
    assert len(frames.candidates()) == sum(len(row["trajectory_ids"]) for step in steps for row in step["selections"])
    assert frames.evaluations().empty


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError):
        open_run(tmp_path)
