import json

import pandas
import pytest

from jobs.queries.frames import open_run
from jobs.runs.directory import RunDirectoryError
from tests.app import played


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    played.play(root, played.FINISHED)
    return root / "play-finished"


def test_frames_hold_what_the_files_hold(run):
    events = [json.loads(line) for line in (run / "attempts/0001/events-000001.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["kind"] == "step"]
    files = pandas.concat(pandas.read_parquet(run / name) for name in dict.fromkeys(step["file"] for step in steps))
    frames = open_run(run)
    fresh = files[~files["is_replayed"]].sort_values("trajectory_id")
    trajectories = frames.trajectories().sort_values("trajectory_id")
    for column in ("trajectory_id", "step", "question_index", "num_tokens", "text", "verdict"):
        assert list(trajectories[column]) == list(fresh[column])
    assert len(frames.replays()) == files["is_replayed"].sum()
    metrics = frames.metrics()
    assert list(metrics["reward/mean"]) == [step["metrics"]["reward/mean"] for step in steps]
    assert len(frames.buffer()) == sum(len(step["buffer_events"]) for step in steps)
    assert len(frames.candidates()) == sum(len(row["trajectory_ids"]) for step in steps for row in step["selections"])
    assert frames.evaluations().empty


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError):
        open_run(tmp_path)
