import multiprocessing

import numpy as np
import pytest

from bench import recording
from bench.made_up_steps import K, StepMaker, StepSize
from bench.recording import new_run, read_until_stopped, record_all
from db.queries import metrics
from jobs.recording.event_reader import EventReader
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.supervisor.open_index import ingest_all

pytestmark = pytest.mark.slow


def test_made_up_steps_have_their_size_and_are_the_same_each_time():
    first, second = (list(StepMaker(StepSize(16, 200)).reports(2)) for _ in range(2))
    lengths = [trajectory.token_ids.size for group in first[0].groups for trajectory in group.trajectories]
    assert len(lengths) == 16 * K
    assert 150 < np.mean(lengths) < 250
    assert [item.text for item in first[1].groups[3].trajectories] == [
        entry.text for entry in second[1].groups[3].trajectories
    ]


@pytest.mark.parametrize("size", [StepSize(0, 0), StepSize(2, 50)])
def test_recorded_steps_are_read_back(tmp_path, size):
    run, recorder = new_run(tmp_path)
    assert len(record_all(recorder, StepMaker(size).reports(3))) == 3
    recorder.close()
    events = EventReader(run).read().events
    assert [len(event["trajectories"]) for event in events] == [K * size.num_questions] * 3


def test_readers_ask_for_a_curve_that_is_there(tmp_path, monkeypatch):
    run, recorder = new_run(tmp_path)
    record_all(recorder, StepMaker(StepSize(0, 0)).reports(3))
    recorder.close()
    write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    assert ingest_all(tmp_path, None)
    charts = []
    monkeypatch.setattr(
        recording, "metric_series", lambda *asked: charts.append(metrics.metric_series(*asked)) or charts[-1]
    )
    ours, theirs = multiprocessing.Pipe()
    ours.send("stop")
    read_until_stopped(theirs, None, tmp_path, run.run_id)
    assert ours.recv() == "ready"
    assert set(ours.recv()) == {"runs_list_ms", "chart_ms"}
    assert [len(points) for chart in charts for points in chart.values()] == [3] * len(charts)
