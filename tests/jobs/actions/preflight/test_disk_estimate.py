import dataclasses

import numpy as np
import pytest

from exgrpo.jobs.actions.preflight.memory_estimate import checkpoint_bytes, estimate_disk
from exgrpo.jobs.specs.base import LoraSpec
from exgrpo.jobs.specs.train import ModelSpec, TrainSpec, load_preset
from exgrpo.jobs.training.pretrained.model_shapes import ModelShape
from exgrpo_core.recording.record_file import pack
from exgrpo_core.recording.report_lines import step_lines, token_lines
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Experience, Replay, RolloutGroup, Trajectory
from tests.step_reports import make_questions

pytestmark = pytest.mark.slow

TINY = ModelShape(
    hidden=4, intermediate=8, layers=2, heads=2, kv_heads=1, vocabulary=10, is_tied=True, context=32
)  # fmt: skip
PAPER_STEPS = 700
LIMIT_BYTES = 20e9
NUM_GROUPS, NUM_ROLLOUTS = 16, 8
VOCABULARY = 150_000


def paper_spec(token_data="successes") -> TrainSpec:
    spec = load_preset("paper-exgrpo")
    recording = spec.recording.model_copy(update={"token_data": token_data})
    return spec.model_copy(update={"num_steps": PAPER_STEPS, "recording": recording})


def long_trajectory(number: int, words: np.ndarray, chances: np.ndarray, rng: np.random.Generator) -> Trajectory:
    """Return a response of about 2,000 tokens with word frequencies of a language; every second one is correct."""
    length = int(np.clip(rng.lognormal(7.5, 0.5), 50, 8192))
    ids = rng.choice(VOCABULARY, length, p=chances).astype(np.int32)
    return Trajectory(
        number // NUM_ROLLOUTS, ids, -rng.exponential(0.3, length).astype(np.float32), float(number % 2),
        text=" ".join(words[ids % words.size]), verdict="correct",
        entropies=rng.exponential(0.3, length).astype(np.float32), trajectory_id=number, rollout_step=1,
    )  # fmt: skip


def paper_like_groups(rng: np.random.Generator) -> list[RolloutGroup]:
    """Return 1/8 of a step of the paper: half of the groups experiential."""
    letters = list("etaoinshrdlcumwfgypbvk")
    words = np.array(["".join(rng.choice(letters, int(rng.integers(2, 7)))) for _ in range(20_000)])
    chances = 1 / np.arange(1, VOCABULARY + 1) ** 1.1
    chances /= chances.sum()
    groups = []
    for item in range(NUM_GROUPS):
        numbers = range(item * NUM_ROLLOUTS, (item + 1) * NUM_ROLLOUTS)
        trajectories = [long_trajectory(number, words, chances, rng) for number in numbers]
        replays = ()
        if item >= NUM_GROUPS // 2:
            old = trajectories.pop()
            stored = Experience(0, old.trajectory_id, item, 1, 1.0, old.token_ids, old.log_probs)
            replays = (Replay(stored, old.log_probs - np.float32(0.01), old.entropies),)
        advantages = np.zeros(NUM_ROLLOUTS, np.float32)
        groups.append(RolloutGroup(make_questions()[item], trajectories, replays, advantages))
    return groups


def test_only_what_a_run_records_is_estimated_and_a_paper_run_takes_less_than_20_gb_by_default():
    tuned, on_policy = estimate_disk(load_preset("chains-sft")), estimate_disk(load_preset("paper-on-policy"))
    assert (tuned.texts, tuned.token_data, tuned.buffer_segments) == (0.0, 0.0, 0.0)
    assert tuned.events > 0.0
    assert (on_policy.replays, on_policy.buffer_segments) == (0.0, 0.0)
    assert 8e9 < estimate_disk(paper_spec(), mean_response_tokens=2_000).total < LIMIT_BYTES


@pytest.mark.parametrize(
    ("limits", "num_stored"),
    [
        ({}, 4000), ({"buffer_capacity": 100}, 100 + 10 * 3 * 40), ({"buffer_age": 5}, 5 * 40 + 10 * 3 * 40),
        ({"buffer_capacity": 100, "buffer_age": 1}, 40 + 10 * 3 * 40), ({"buffer_capacity": 3900}, 4000),
    ],
)  # fmt: skip
def test_segments_of_a_limited_buffer_are_what_it_holds_and_what_kept_checkpoints_need(limits, num_stored):
    # Of 4 groups of 20 rollouts a step stores half; with so small a share none of them replays.
    spec = TrainSpec(num_steps=100, checkpoint_interval=10, num_checkpoints_kept=2, keeps_best_checkpoint=False)
    sizes = {"batch_size": 4, "mini_batch_size": 4, "rollouts_per_question": 20, "experience_ratio": 0.1}
    spec = spec.model_copy(update={"algorithm": dataclasses.replace(spec.algorithm, **sizes, **limits)})
    assert estimate_disk(spec, mean_response_tokens=10).buffer_segments == pytest.approx(num_stored * 10 * 8.0)
    with_best = estimate_disk(spec.model_copy(update={"keeps_best_checkpoint": True}), mean_response_tokens=10)
    num_more = min(num_stored - 10 * 3 * 40, 4000 - num_stored)
    assert with_best.buffer_segments == pytest.approx((num_stored + num_more) * 10 * 8.0)


def test_checkpoints_are_those_kept_and_the_one_being_written_and_verls_hold_the_model_beside_adapters():
    spec = TrainSpec(num_steps=100, checkpoint_interval=25, num_checkpoints_kept=2)
    assert checkpoint_bytes(TINY, spec) == 348 * 12 * 4
    assert checkpoint_bytes(TINY, spec.model_copy(update={"keeps_best_checkpoint": False})) == 348 * 12 * 3
    assert checkpoint_bytes(TINY, spec.model_copy(update={"num_steps": 26})) == 348 * 12 * 2
    spec = TrainSpec(num_steps=1, model=ModelSpec(lora=LoraSpec(rank=3, target_modules=("k_proj", "down_proj"))))
    assert checkpoint_bytes(TINY, spec) == 108 * 12
    assert checkpoint_bytes(TINY, spec.model_copy(update={"engine": "verl"})) == 108 * 12 + 348 * 4


def test_the_estimate_is_what_a_recorded_step_takes():
    groups = paper_like_groups(np.random.default_rng(0))
    fresh = [trajectory for group in groups for trajectory in group.trajectories]
    report = StepReport(1, is_replay_open=True, groups=groups)
    recorded = pack(step_lines("", report), token_lines(report, lambda trajectory: trajectory.reward >= 1.0))
    spec = paper_spec()
    small = {"batch_size": NUM_GROUPS, "mini_batch_size": NUM_GROUPS // 2}
    algorithm = dataclasses.replace(spec.algorithm, **small)
    step = spec.model_copy(update={"algorithm": algorithm, "num_steps": 1})
    mean_tokens = sum(trajectory.token_ids.size for trajectory in fresh) / len(fresh)
    estimate = estimate_disk(step, mean_tokens)
    expected = estimate.texts + estimate.token_data + estimate.replays
    assert len(recorded) == pytest.approx(expected, rel=0.15)
    assert len(recorded) * 8 * PAPER_STEPS < LIMIT_BYTES
