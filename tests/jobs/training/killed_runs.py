"""Runs that were killed between two checkpoints."""

import pytest

from exgrpo.jobs.runs.directory import RunDirectory
from tests.faults.small_training import StepControl, small_spec, train


class KilledError(Exception):
    """Ends an attempt as a kill does."""


def killing_at(step: int) -> StepControl:
    def end(done: int) -> None:
        if done == step:
            raise KilledError

    return StepControl(at_step=end)


def killed_run(folder, at_step) -> RunDirectory:
    run = RunDirectory.create(folder, small_spec(9, 4))
    with pytest.raises(KilledError):
        train(run, killing_at(at_step))
    return run
