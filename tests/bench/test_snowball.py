"""The runner and the tables of the snowball runs, on the smallest runs and on made-up tallies."""

from dataclasses import replace

import numpy as np
import pytest

from bench import snowball, snowball_report
from bench.snowball import METHODS, PARTS, Spread
from exgrpo_core.step_report import BufferEvent, BufferEventKind, StepReport
from exgrpo_core.types import RolloutGroup, Trajectory
from jobs.training import run_data
from jobs.training.warm_start import WarmStartSettings, warm_model
from tests.exgrpo_core.builders import question, replay

HIGHEST, LOWEST, ON_POLICY = METHODS


@pytest.fixture
def tiny_model(tmp_path, monkeypatch):
    settings = WarmStartSettings(num_layers=1, width=16, num_heads=2, num_steps=3)
    monkeypatch.setattr(run_data, "_warm_chains_model", lambda *_: warm_model(settings, tmp_path))


@pytest.mark.usefixtures("tiny_model")
def test_a_run_has_a_tally_of_each_step_and_starts_from_the_warm_model_of_its_seed():
    spec = snowball.spec_of(HIGHEST, 4)
    assert (spec.seed, spec.algorithm.seed, spec.model.warm_seed) == (4, 4, 1)
    spread = snowball.run(HIGHEST, spec.model_copy(update={"num_steps": 2}))
    assert {len(spread.tallies[part]) for part in PARTS} == {2}
    assert spread.tallies["rollouts"][0][0] == 16 * 8
    assert len(spread.num_correct) == spec.data.num_held_out


def rollout(trajectory_id, reward, has_code, is_valid):
    ids, values = np.array([1], dtype=np.int32), np.array([0.5], dtype=np.float32)
    return Trajectory(
        0, ids, -values, reward, has_code=has_code, is_valid=is_valid, entropies=values, trajectory_id=trajectory_id
    )


def test_tallies_follow_what_is_inserted_retired_and_replayed():
    spread, known, stored = Spread(HIGHEST, 0, 0), {}, {}
    inserted = BufferEvent(BufferEventKind.INSERTED, 0, 7, 1, 1)
    first = RolloutGroup(question(0), [rollout(7, 1.0, True, False), rollout(8, 0.0, False, True)])
    snowball.add_step(spread, StepReport(1, True, [first], buffer_events=[inserted]), known, stored)
    chosen = replay(0, [1], [-1.0], [-1.0])
    chosen = replace(chosen, experience=chosen.experience._replace(trajectory_id=7))
    second = RolloutGroup(question(0), [rollout(9, 1.0, False, True)], (chosen,))
    retired = BufferEvent(BufferEventKind.RETIRED, 0, None, 1, None)
    snowball.add_step(spread, StepReport(2, True, [second], buffer_events=[retired]), known, stored)
    assert spread.tallies == {
        "rollouts": [(2, 1, 1), (1, 0, 0)],
        "successes": [(1, 1, 1), (1, 0, 0)],
        "buffer": [(1, 1, 1), (0, 0, 0)],
        "replays": [(0, 0, 0), (1, 1, 1)],
    }
    # Half of the first step's rollouts are right; the second step's group is solved and left out.
    assert spread.chains == {"medium, code": (1, 0.5, 0)}


def line(method, seed, code_in_replays):
    tallies = {part: [(10, 4, 3)] * 100 for part in PARTS}
    tallies["replays"] = [(0, 0, 0)] * 10 + [(10, 1, 2)] * 10 + [(10, code_in_replays, 2)] * 80
    return {
        "method": method, "seed": seed, "tallies": tallies, "num_correct": [8, seed],
        "chains": {"easy, code": (4, 1.0, 2), "easy, no code": (2, 1.0, 2)},
    }  # fmt: skip


def test_tables_have_shares_differences_and_what_holms_correction_leaves():
    lines = [line(method, seed, 4 + seed % 2) for method in METHODS for seed in range(4)]
    text = snowball_report.tables([*lines, line(HIGHEST, 9, 1)])
    assert text.startswith("Seeds of each method: 4; 100 steps.")
    rows = text.splitlines()
    # Code in replays grows from 10% to 40% or 50%.
    assert f"| Code in replays, {HIGHEST}: last 20 steps minus first | +35.0 ± 9.2 * | " in text
    assert "| Held-out Avg@8: highest entropy minus on-policy | 0.00 | 1.000 |" in rows
    assert any(row.startswith("| 1-20 | 40.0 |") and row.endswith("| 10.0 | 10.0 |") for row in rows)
    assert "| easy | 0.500 | 0.250 | 1.00 | 0.500 |" in rows
    assert f"| {ON_POLICY} | 59.4 ± 12.8 |" in rows
    assert "| medium | - | - | - | - |" in rows
