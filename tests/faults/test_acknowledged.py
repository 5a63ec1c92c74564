"""Row 15: no trajectory that was recorded up to a checkpoint is lost from it or changed by a kill."""

import random
from collections import Counter

import numpy as np
import pytest

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.training.training_loop import TrainingLoop
from tests.faults.phased_training import PHASES, Trainer
from tests.faults.recorded import recorded_tokens
from tests.faults.small_training import EightNumbers, StepControl, small_parts, small_spec

pytestmark = [pytest.mark.fault_row(15), pytest.mark.slow]

KILLS_OF_A_RUN = 3


def test_no_recorded_trajectory_is_lost_or_changed_by_a_kill(tmp_path, is_long, figure):
    num_kills = 150 if is_long else 12
    chance, met = random.Random(15), Counter[str]()
    wanted = [[*PHASES][i % len(PHASES)] for i in range(num_kills)]
    chance.shuffle(wanted)
    num_recorded = num_lost = num_changed = num_extra = 0
    for first in range(0, num_kills, KILLS_OF_A_RUN):
        spec = small_spec(100_000, 4)
        run = RunDirectory.create(tmp_path / str(first), spec)
        for phase in wanted[first : first + KILLS_OF_A_RUN]:
            num_before = chance.randrange({"o": 1, "w": 3}.get(phase, 8))
            met[Trainer(run).kill_in(phase, chance, num_before)] += 1
            step, stored = stored_trajectories(run)
            recorded = recorded_tokens(run, step)
            num_extra += len(stored.keys() - recorded.keys())
            num_lost += len(recorded.keys() - stored.keys())
            num_changed += sum(stored[i].token_ids.tolist() != recorded[i] for i in recorded.keys() & stored.keys())
        num_recorded += len(recorded)
    figure("kills", ", ".join(f"{name} {count}" for name, count in sorted(met.items())))
    figure("recorded trajectories lost", f"{num_lost} of {num_recorded:,}")
    figure("recorded trajectories changed", f"{num_changed} of {num_recorded:,}")
    assert met.total() == num_kills
    assert num_recorded > 5 * num_kills / KILLS_OF_A_RUN
    assert (num_lost, num_changed, num_extra) == (0, 0, 0)


def stored_trajectories(run):
    """Return the step that the next attempt would continue from, and all its trajectories."""
    loop = TrainingLoop(run.spec(), run.path, small_parts(EightNumbers()), None, StepControl())  # type: ignore[arg-type]
    state, _ = loop._open_state()
    experiences = state.replay_buffer.experiences(np.arange(len(state.replay_buffer.stored_rows())))
    state.replay_buffer.close()
    return state.step, {item.trajectory_id: item for item in experiences}
