"""What a finished run leaves behind, in a form that two runs can be compared in, bit for bit."""

import json
from typing import Any

import numpy as np

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries import buffer, metrics
from exgrpo.jobs.runs.checkpoints import checkpoint_path
from exgrpo.jobs.runs.recording.event_reader import iterate_events
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.recording.record_file import iterate_lines, list_records
from exgrpo_core.step_report import METRICS
from tests.db.table_contents import buffer_changes
from tests.records import values_of


def losses(runs_root, run_id):
    keys = [key for key in METRICS if not key.startswith(("seconds/", "system/"))]
    database = open_database(None, runs_root)
    series = metrics.metric_series(database, run_id, keys, 10_000)
    database.close()
    return {key: [(point.step, point.value) for point in points] for key, points in series.items()}


def draws(runs_root, run_id, num_steps):
    """Every change of the buffer and every candidate of every selection."""
    database = open_database(None, runs_root)
    changes = buffer_changes(database, run_id)
    candidates = [repr(row) for step in range(1, num_steps + 1) for row in buffer.candidates(database, run_id, step)]
    database.close()
    return [changes, candidates]


def policy_files(run, step):
    folder = checkpoint_path(run.checkpoints_path, step) / "policy"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def experience_state(run, step):
    path = checkpoint_path(run.checkpoints_path, step) / "experience" / "experience.json"
    return json.loads(path.read_text())


def buffer_content(run, step):
    """Every stored trajectory of every buffered question with its bucket, whatever segments they are in."""
    snapshot = checkpoint_path(run.checkpoints_path, step) / "experience" / "buffer.snapshot"
    stored = ReplayBuffer.restore(run.buffer_path, snapshot)
    content: list[Any] = []
    for question in np.sort(stored.questions()):
        for experience in stored.experiences(stored.rows_of(int(question))):
            content.append(
                (
                    int(question), stored.bucket_of(int(question)), experience.trajectory_id, experience.rollout_step,
                    experience.token_ids.tobytes(), experience.behavior_log_probs.tobytes(),
                )
            )  # fmt: skip
    stored.close()
    return content


def assert_same_end(run, whole):
    num_steps = whole.spec().num_steps
    assert policy_files(run, num_steps) == policy_files(whole, num_steps)
    assert experience_state(run, num_steps) == experience_state(whole, num_steps)
    assert buffer_content(run, num_steps) == buffer_content(whole, num_steps)


def recorded_tokens(run, last_step=float("inf")):
    """Return the tokens of every trajectory that recorded steps, up to `last_step`, inserted into the buffer."""
    tokens: dict[int, list[int]] = {}
    kept: dict[tuple[int, int], dict[int, str]] = {}
    for attempt in run.attempts():
        for record in list_records(run.attempt_path(attempt)):
            for line in map(json.loads, iterate_lines(record.path, {"tokens"})):
                if not line["is_replayed"]:
                    kept.setdefault((attempt, line["step"]), {})[line["id"]] = line["token_ids"]
    for event in iterate_events(run, "step"):
        inserted = {change["trajectory_id"] for change in event["buffer_events"] if change["kind"] == "inserted"}
        if inserted and event["step"] <= last_step:
            of_step = kept[event["attempt"], event["step"]]
            tokens |= {name: values_of(of_step[name], "token_ids").tolist() for name in inserted}
    return tokens
