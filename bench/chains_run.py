"""A run on register chains held in memory, for benchmarks that time its steps."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from exgrpo.jobs.specs.train import load_preset
from exgrpo.jobs.training.composition import open_components
from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.run_components import RunComponents
from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import PolicyEngine
from exgrpo_core.step_report import StepReport


@dataclasses.dataclass(slots=True)
class ChainsRun:
    """Parts, state and configuration of one run; replay starts with the first step."""

    components: RunComponents
    state: ExGRPOState
    config: ExGRPOConfig

    @property
    def engine(self) -> EmbeddedEngine:
        """The embedded engine that the run trains with."""
        if not isinstance(self.components.engine, EmbeddedEngine):
            raise TypeError(f"engine: expected EmbeddedEngine, got {type(self.components.engine).__name__}.")
        return self.components.engine

    def step(self, engine: PolicyEngine | None = None) -> StepReport:
        """Do one step, through `engine` if one is given instead of the run's."""
        return exgrpo_step(self.state, engine or self.engine, self.config)


@contextlib.contextmanager
def open_chains_run(preset: str) -> Iterator[ChainsRun]:
    """Open a run of a `chains` preset on one torch thread of the CPU, with delayed start off."""
    torch.set_num_threads(1)
    spec = load_preset(preset)
    config = dataclasses.replace(spec.algorithm, start_pass_rate=None)
    spec = spec.model_copy(update={"algorithm": config, "model": spec.model.model_copy(update={"device": "cpu"})})
    with open_components(spec) as components, tempfile.TemporaryDirectory() as directory:
        state = ExGRPOState.create(Path(directory), components.questions, config)
        try:
            yield ChainsRun(components, state, config)
        finally:
            state.replay_buffer.close()
