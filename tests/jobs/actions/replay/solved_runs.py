"""Runs of Algorithm 1 on register chains, with an engine without a model whose responses the oracle can grade."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.base import ANSWER_ALONE
from exgrpo.jobs.specs.train import load_preset
from exgrpo.jobs.tasks.grading.reward_function import Response
from exgrpo.jobs.tasks.grading.rewards import open_reward
from exgrpo.jobs.training.reward_parts import open_reward_parts
from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport
from tests.exgrpo_core.builders import small_config
from tests.exgrpo_core.test_rollouts_ahead import AheadToyEngine
from tests.exgrpo_core.toy_engine import ToyEngine
from tests.jobs.evaluation.judging.chain_runs import WRITINGS, chain_question

NUM_QUESTIONS, NUM_STEPS = 24, 6
Change = Callable[[StepReport], None]


class SolvingEngine(ToyEngine):
    """A toy engine that writes a right or a wrong chain, which the run's own grader rewards."""

    def __init__(self, grader) -> None:
        super().__init__(list(np.linspace(0.15, 0.97, NUM_QUESTIONS)))
        self.grader = grader

    def _trajectory(self, question):
        made = super()._trajectory(question)
        made.text = WRITINGS["valid" if made.reward else "wrong"]
        made.entropies = 0.2 + self.rng.random(made.token_ids.size, dtype=np.float32)
        [verdict] = self.grader.grade([question], [Response(made.text, made.token_ids, False)])
        made.reward, made.verdict, made.reward_parts = verdict.reward, verdict.outcome, verdict.parts
        return made


class AheadSolvingEngine(SolvingEngine, AheadToyEngine):
    """The same, which generates the next step's rollouts during the update."""


def record(
    root: Path, change: Change | None = None, *, num_steps=NUM_STEPS, weights=ANSWER_ALONE, **settings: object
) -> RunDirectory:
    """Play and record a run; with `change`, each report is changed after its step and before it is recorded."""
    config = small_config(**{"experience_ratio": 0.5} | settings)
    spec = load_preset("chains-exgrpo")
    spec = spec.model_copy(
        update={
            "engine": "verl" if config.rollouts_ahead else "embedded", "num_steps": num_steps, "algorithm": config,
            "data": spec.data.model_copy(update={"rewards": weights}),
        },
    )  # fmt: skip
    run = RunDirectory.create(root, spec, run_id="solved")
    run.attempt_path(1).mkdir(parents=True)
    questions = [replace(chain_question(), index=index, question_id=f"q{index}") for index in range(NUM_QUESTIONS)]
    state = ExGRPOState.create(run.path / "buffer", questions, config)
    recorder = FileRecorder(run, 1, spec.recording)
    recorder.status(RunStatus.RUNNING)
    recorder.questions(questions, "training")
    with ExitStack() as stack:
        grader = stack.enter_context(open_reward(spec))
        if weights != ANSWER_ALONE:
            grader = stack.enter_context(open_reward_parts(grader, weights))
        engine = (AheadSolvingEngine if config.rollouts_ahead else SolvingEngine)(grader)
        for _ in range(num_steps):
            report = exgrpo_step(state, engine, config)
            if change is not None:
                change(report)
            recorder.step(report)
    recorder.close()
    write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    return run
