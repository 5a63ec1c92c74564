from dataclasses import replace

import numpy as np
import pytest

from db.queries.trajectory_weights import trajectory_weights
from exgrpo_core.step_report import Selection
from tests.db.recorded_runs import ingest_run, new_run, record_attempt

# (trajectory of step 1, age, entropy, log of W): the first of each pair is replayed.
PAIRS = [((0, 1, 0.1, 0.0), (1, 1, 0.3, np.log(4.0))), ((3, 3, 0.2, np.log(2.0)), (4, 3, 0.4, np.log(8.0)))]


def score(report):
    """Let step 1 write trajectories of log-prob -1 a token, and steps 2 and 4 score two of them each."""
    report.selections = []
    for group in report.groups:
        for trajectory in group.trajectories:
            trajectory.token_ids, trajectory.log_probs = np.arange(4, dtype=np.int32), np.full(4, -1.0, np.float32)
            trajectory.entropies = np.full(4, 0.5, np.float32)
    for pair in PAIRS:
        ids, ages, entropies, logs = map(np.array, zip(*pair, strict=True))
        if ages[0] + 1 == report.step:
            report.selections.append(
                Selection(
                    question_index=4, bucket=1, trajectory_ids=ids, born_steps=report.step - ages,
                    num_tokens=np.array([4, 4]), entropies=entropies.astype(np.float32),
                    nlls=(1.0 - logs / 4).astype(np.float32), scores=entropies.astype(np.float32), chosen=(0,),
                )
            )  # fmt: skip


def test_weights_follow_from_log_probs_then_and_now(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 5), change=score)
    ingest_run(database, run)
    lines = trajectory_weights(database, run.run_id, shaping_beta=1.0)
    replayed, others, young, old, low, high = lines
    # W is 1 and 2 of the replayed ones, 4 and 8 of the others.
    assert (replayed.num_trajectories, replayed.mean, replayed.square_mean, replayed.largest) == pytest.approx(
        (2, 1.5, 2.5, 2.0)
    )
    assert replayed.shaped_mean == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert replayed.effective_share == pytest.approx(9 / (2 * 5))
    assert replayed.token_ratio == pytest.approx((1 + 2**0.25) / 2)
    assert others.group == "candidates not replayed"
    assert (others.mean, others.square_mean) == pytest.approx((6.0, 40.0))
    assert [young.group, old.group] == ["replayed, age up to 1", "replayed, age over 1 to 3"]
    assert [low.group, high.group] == ["replayed, entropy up to 0.100", "replayed, entropy over 0.100 to 0.200"]
    assert replace(young, group="") == replace(low, group="")
    assert (young.mean, old.mean) == pytest.approx((1.0, 2.0))


def test_runs_without_candidates_have_no_weights(database):
    assert trajectory_weights(database, "none", 0.1) == []
