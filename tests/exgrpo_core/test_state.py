"""What is saved of a state and restored; a state that is damaged or of other questions."""

import dataclasses

import pytest

from exgrpo_core import DelayedStart, ExGRPOState
from exgrpo_core.state import StateError
from exgrpo_core.types import RolloutGroup
from tests.exgrpo_core.builders import question, small_config, trajectory
from tests.exgrpo_core.test_algorithm import NUM_QUESTIONS, new_state, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("damage", ["cut", "missing", "key gone", "of other questions"])
def test_a_damaged_state_and_one_of_other_questions_are_refused(tmp_path, damage):
    config = small_config()
    state, _, _ = run(tmp_path, config, 2)
    state.save(tmp_path / "saved")
    path = tmp_path / "saved" / "experience.json"
    if damage == "missing":
        path.unlink()
    elif damage != "of other questions":
        path.write_text(path.read_text()[:40] if damage == "cut" else "{}")
    prefix = "other" if damage == "of other questions" else "q"
    questions = [dataclasses.replace(question(i), question_id=f"{prefix}{i}") for i in range(NUM_QUESTIONS)]
    with pytest.raises(StateError):
        ExGRPOState.restore(tmp_path / "buffer", tmp_path / "saved", questions, config)


def test_too_few_questions_are_refused(tmp_path):
    with pytest.raises(ValueError, match="batch_size"):
        new_state(tmp_path, small_config(), num_questions=3)


def test_the_delayed_start_opens_strictly_over_the_rate_stays_open_and_comes_back():
    start, restored = DelayedStart(0.35), DelayedStart(0.35)
    seen = []
    for pass_rate in (0.35, 0.36, 0.0):
        start.observe(pass_rate)
        restored.load_state_dict(start.state_dict())
        seen.append((start.is_open, restored.is_open))
    assert seen == [(False, False), (True, True), (True, True)]
    assert DelayedStart(None).is_open


def test_tokens_of_a_prefix_were_not_generated(tmp_path):
    state = new_state(tmp_path, small_config())
    whole, continued = (trajectory(0, range(size), 1.0) for size in (4, 7))
    continued.num_prefix_tokens = 5
    state.number_trajectories([RolloutGroup(question(0), [whole, continued])])
    assert (state.num_fresh_rollouts, state.num_generated_tokens) == (2, 4 + 2)
