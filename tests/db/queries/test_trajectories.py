import dataclasses

import pytest

from db.queries import lineage, trajectories
from tests.db.recorded_runs import ingest_changed_run
from tests.step_reports import make_report


def fresh_of(step):
    return [item for group in make_report(step).groups for item in group.trajectories]


def test_a_trajectory_comes_back_whole(recorded_run):
    database, recorded = recorded_run
    made = fresh_of(3)[2]
    row = trajectories.get_trajectory(database, recorded, made.trajectory_id)
    assert (row.text, row.reward, row.verdict, row.step) == (made.text, made.reward, made.verdict, 3)
    assert (row.question_id, row.is_valid, row.has_code) == (f"id{made.question_index:04d}", made.is_valid, False)
    assert row.mean_entropy == pytest.approx(float(made.entropies.mean()), rel=1e-6)
    file = trajectories.find_trajectory_file(database, recorded, made.trajectory_id)
    assert file == "attempts/0001/trajectories/step-00000003.parquet"
    assert trajectories.get_trajectory(database, recorded, 10_000) is None


def test_replays_of_a_trajectory_are_counted_and_listed(database, tmp_path):
    def replay_the_first(report):
        for group in report.groups:
            if group.has_replay:
                stored = group.replays[0].experience
                changed = type(stored)(0, 0, stored.question_index, 1, 1.0, stored.token_ids, stored.behavior_log_probs)
                same = {"experience": changed, "old_log_probs": stored.behavior_log_probs}
                group.replays = (dataclasses.replace(group.replays[0], **same),)
                return

    row = ingest_changed_run(database, tmp_path, replay_the_first, range(1, 4))
    first = trajectories.get_trajectory(database, row.run_id, 0)
    assert first.num_replays == 2
    events = lineage.lineage(database, row.run_id, 0, first.question_index, first.step)
    replays = [(event.step, event.mean_ratio, event.max_ratio) for event in events if event.kind == "replayed"]
    assert replays == [(2, 1.0, 1.0), (3, 1.0, 1.0)]
