import dataclasses
from itertools import cycle

import numpy as np
import pytest
import torch

from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.engines.embedded.model import wrap_model
from exgrpo.jobs.training.engines.embedded.update import OptimSettings
from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.state import ExGRPOState
from exgrpo_core.types import Question
from tests.exgrpo_core.strategies.replay_methods import METHODS, WITHOUT_TRAJECTORIES
from tests.jobs.training.engines.contract import PolicyEngineContract, score, training_rows
from tests.jobs.training.engines.embedded.engines import (
    CONFIG,
    SMALL,
    EvenTokenReward,
    make_engine,
    make_questions,
    same_weights,
)
from tests.jobs.training.engines.tiny_models import CHARACTERS, END, build_model, tiny_tokenizer

pytestmark = pytest.mark.slow


def requests(questions, num_rollouts=3):
    return [RolloutRequest(question, num_rollouts) for question in questions]


class TestEmbeddedEngine(PolicyEngineContract):
    @pytest.fixture(params=["qwen2_tied", "llama", "llama+lora", "gpt2"])
    def engine(self, request):
        return make_engine(request.param)

    @pytest.fixture
    def config(self):
        return CONFIG

    @pytest.fixture
    def questions(self):
        return make_questions()


SAVED = ("qwen2_tied", "qwen2_untied", "llama_with_biases", "llama_with_biases+lora", "gpt2")


def untimed(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("seconds/")}


def tokens(groups):
    return [trajectory.token_ids.tolist() for group in groups for trajectory in group.trajectories]


@pytest.mark.parametrize(("name", "architecture"), [*zip(METHODS, cycle(SAVED), strict=False)])
def test_each_replay_method_and_architecture_runs_saved_and_restored_as_if_it_never_stopped(
    name, architecture, tmp_path
):
    changes, questions = SMALL | METHODS[name], make_questions(8)
    config = dataclasses.replace(CONFIG, **changes)
    engine, state = make_engine(architecture, **changes), ExGRPOState.create(tmp_path / "buffer", questions, config)
    before = [exgrpo_step(state, engine, config) for _ in range(3)]
    engine.save(tmp_path / "policy")
    state.save(tmp_path / "experience")
    reports = [exgrpo_step(state, engine, config) for _ in range(2)]
    again = make_engine(architecture, seed=99, **changes)
    again.restore(tmp_path / "policy")
    restored = ExGRPOState.restore(tmp_path / "buffer", tmp_path / "experience", questions, config)
    for report in reports:
        other = exgrpo_step(restored, again, config)
        assert tokens(other.groups) == tokens(report.groups)
        assert other.buffer_events == report.buffer_events
        assert untimed(other.metrics) == untimed(report.metrics)
    assert same_weights(again, engine)
    assert any(group.has_replay for report in before + reports for group in report.groups) is (
        name not in WITHOUT_TRAJECTORIES
    )


def test_verdicts_and_texts_without_special_tokens_reach_the_trajectories_they_belong_to():
    for group in make_engine().rollout(requests(make_questions())):
        for trajectory in group.trajectories:
            assert trajectory.text == "".join(CHARACTERS[token - 2] for token in trajectory.token_ids if token > END)
            assert trajectory.reward == float(trajectory.token_ids[0] % 2 == 0)
            assert trajectory.verdict == ("correct" if trajectory.reward else "wrong")
            assert trajectory.has_code is False
            assert trajectory.is_valid is None


@pytest.mark.parametrize("num_tokens", [0, 17])
def test_a_prompt_beyond_the_limit_or_without_tokens_is_refused_by_name(num_tokens):
    question = Question(0, "q-odd", np.full(num_tokens, 5, dtype=np.int32), "", "")
    with pytest.raises(EngineError, match="q-odd"):
        make_engine().rollout(requests([question]))


def test_a_context_too_short_for_prompt_and_response_is_refused():
    with pytest.raises(EngineError, match="max_response_tokens"):
        make_engine(max_prompt_tokens=16, max_response_tokens=113)
    make_engine(max_prompt_tokens=16, max_response_tokens=112)


def test_evaluation_leaves_the_training_sampler_alone_and_repeats_itself():
    plain, evaluated = make_engine(), make_engine()
    questions = make_questions()
    first = evaluated.generate_for_evaluation(questions, 4, 0.7, 12, seed=9)
    second = evaluated.generate_for_evaluation(questions, 4, 0.7, 12, seed=9)
    assert [len(item) for item in first] == [4] * len(questions)
    for one, two in zip(first, second, strict=True):
        for mine, other in zip(one, two, strict=True):
            np.testing.assert_array_equal(mine.token_ids, other.token_ids)
            assert mine.text == other.text
    (greedy,) = evaluated.generate_for_evaluation(questions[:1], 3, 0.0, 12, seed=0)
    assert len({response.token_ids.tobytes() for response in greedy}) == 1
    assert tokens(plain.rollout(requests(questions))) == tokens(evaluated.rollout(requests(questions)))


def test_the_seed_decides_the_rollouts():
    questions = make_questions()
    first, same, other = (tokens(make_engine(seed=seed).rollout(requests(questions))) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_the_kl_penalty_is_zero_at_first_and_grows_as_the_policy_leaves(tmp_path):
    engine = make_engine(kl_coefficient=0.1)
    config = engine._config
    state = ExGRPOState.create(tmp_path, make_questions(), config)
    first, *_, last = [exgrpo_step(state, engine, config).metrics["loss/kl"] for _ in range(4)]
    assert 0.0 <= first < last


@pytest.mark.gpu
@pytest.mark.parametrize("architecture", ["qwen2_tied", "qwen3"])
def test_a_gpu_computes_in_bfloat16_with_float32_weights(architecture):
    if not torch.cuda.is_available():
        pytest.skip("No CUDA device on this machine.")
    policy = wrap_model(build_model(architecture), tiny_tokenizer(), torch.device("cuda"))
    engine = EmbeddedEngine(policy, EvenTokenReward(), CONFIG, OptimSettings(learning_rate=1e-3), 0)
    groups = engine.rollout(requests(make_questions()))
    assert all(item.log_probs.dtype == np.float32 for group in groups for item in group.trajectories)
    assert policy.model.lm_head.weight.dtype is torch.float32
    scores = score(engine, groups)
    sampled = [trajectory.log_probs for group in groups for trajectory in group.trajectories]
    assert np.abs(np.concatenate(scores.log_probs) - np.concatenate(sampled)).mean() < 0.1
    rows = training_rows(groups, np.linspace(-1.0, 1.0, len(sampled)))
    metrics = engine.update([MiniBatch(rows, 0)], build_objective(CONFIG, is_replay_open=True))
    assert 0.0 < metrics["optim/gradient_norm"] < np.inf
