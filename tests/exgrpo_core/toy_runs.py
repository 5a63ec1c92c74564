"""Steps of Algorithm 1 on a toy engine."""

from exgrpo_core import ExGRPOState, exgrpo_step
from tests.exgrpo_core.builders import question
from tests.exgrpo_core.toy_engine import ToyEngine

NUM_QUESTIONS = 40
MEDIUM_RATES = [0.5] * NUM_QUESTIONS


def new_state(tmp_path, config, num_questions=NUM_QUESTIONS, external=None):
    return ExGRPOState.create(tmp_path / "buffer", [question(i) for i in range(num_questions)], config, external)


def run(tmp_path, config, num_steps, rates=MEDIUM_RATES, seed=0, state=None, engine=None):
    state = state or new_state(tmp_path, config)
    engine = engine or ToyEngine(rates, seed)
    return state, engine, [exgrpo_step(state, engine, config) for _ in range(num_steps)]
