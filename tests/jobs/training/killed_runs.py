"""Runs that were killed between two checkpoints."""

import dataclasses

import pytest

from exgrpo_core.config import LogProbRefresh
from jobs.runs.directory import RunDirectory
from jobs.specs.base import ResumeSpec
from tests.faults.small_training import StepControl, small_spec, train


class KilledError(Exception):
    """Ends an attempt as a kill does."""


def killing_at(step: int) -> StepControl:
    def end(done: int) -> None:
        if done == step:
            raise KilledError

    return StepControl(at_step=end)


def killed_run(folder, experience, at_step, interval=4, refresh=LogProbRefresh.NEVER) -> RunDirectory:
    spec = small_spec(9, interval)
    algorithm = dataclasses.replace(spec.algorithm, refresh=refresh)
    spec = spec.model_copy(update={"resume": ResumeSpec(experience=experience), "algorithm": algorithm})
    run = RunDirectory.create(folder, spec)
    with pytest.raises(KilledError):
        train(run, killing_at(at_step))
    return run
