import dataclasses
import gc

import numpy as np
import pytest

from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import build_objective
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.process_memory import NEW_OBJECTS
from exgrpo_core.state import ExGRPOState
from tests.exgrpo_core.strategies.replay_methods import METHODS, WITHOUT_TRAJECTORIES
from tests.jobs.training.engines.contract import PolicyEngineContract, stored, training_rows
from tests.jobs.training.engines.embedded.engines import CONFIG, SMALL, make_engine, make_questions
from tests.jobs.training.engines.paired_engines import PairedEngines, check_parity
from tests.jobs.training.engines.verl_ray.engines import open_engine

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(1200)]

STEPS_TOLERANCE = 1e-3
"""Optimizers amplify the rounding of ten updates."""
OBJECTIVES = {
    "experiential": build_objective(CONFIG, is_replay_open=True),
    "clipped, with entropy bonus": build_objective(
        dataclasses.replace(CONFIG, entropy_coefficient=0.01, experience_ratio=0.0), is_replay_open=True
    ),
    "token mean, unshaped": build_objective(
        dataclasses.replace(CONFIG, shapes_policy=False, loss_aggregation="token_mean"), is_replay_open=True
    ),
}
ONLY_SELECTING = {
    "trl_replay", "trinity", "prioritized_proportional", "prioritized_rank", "fifo", "fresh_per", "bapo", "limited",
    "limited groups",
}  # fmt: skip
"""Methods that score and learn as another does: what they select is decided before an engine is asked."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """An engine on two ranks whose Ray runs for all tests, and the checkpoint of its first state."""
    folder = tmp_path_factory.mktemp("ranks")
    with open_engine(folder, 2) as engine:
        engine.save(folder / "first")
        yield engine, folder / "first"


@pytest.fixture
def engine(running):
    engine, first = running
    engine.restore(first)
    return engine


@pytest.fixture
def config():
    return CONFIG


@pytest.fixture
def questions():
    return make_questions()


class TestVerlEngine(PolicyEngineContract):
    """The contract of every engine."""


@pytest.mark.parametrize("name", OBJECTIVES)
def test_scores_loss_and_an_optimizer_step_are_those_of_the_embedded_engine(engine, name):
    check_parity(make_engine(), engine, OBJECTIVES[name])


def test_padded_rows_give_the_same_as_packed_ones(engine, monkeypatch):
    from exgrpo_core.verl_plugin import trainer

    make_blocks = trainer.make_blocks
    padded = {"use_remove_padding": False}
    monkeypatch.setattr(
        trainer, "make_blocks", lambda *most_of_it: make_blocks(*most_of_it[:3], most_of_it[3] | padded)
    )
    check_parity(make_engine(), engine, OBJECTIVES["experiential"])


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ONLY_SELECTING])
def test_five_steps_of_each_replay_method_are_those_of_the_embedded_engine(engine, name, tmp_path):
    changes = SMALL | METHODS[name]
    config = dataclasses.replace(CONFIG, **changes)
    pair = PairedEngines(make_engine(**changes), engine)
    state = ExGRPOState.create(tmp_path, make_questions(8), config)
    reports = [exgrpo_step(state, pair, config) for _ in range(5)]
    assert any(group.has_replay for report in reports for group in report.groups) is (name not in WITHOUT_TRAJECTORIES)
    pair.assert_equal(STEPS_TOLERANCE)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_any_number_of_rows_works_on_two_ranks(engine, questions, num_rows):
    (group,) = engine.rollout([RolloutRequest(questions[0], num_rows)])
    assert len(engine.entropies(*stored([group])).log_probs) == num_rows
    mini_batch = MiniBatch(training_rows([group], [1.0] * num_rows), 0)
    metrics = engine.update([mini_batch], OBJECTIVES["experiential"])
    assert metrics["optim/num_updated_tokens"] == sum(trajectory.token_ids.size for trajectory in group.trajectories)


def test_mini_batch_without_advantage_changes_nothing_but_moments(engine, questions):
    groups = engine.rollout([RolloutRequest(question, 2) for question in questions[:2]])
    metrics = engine.update([MiniBatch(training_rows(groups, [0.0] * 4), 0)], OBJECTIVES["experiential"])
    assert metrics["optim/gradient_norm"] == 0.0
    assert metrics["optim/num_updated_tokens"] == 0.0


@pytest.mark.usefixtures("engine")
def test_processes_of_verl_collect_rarely():
    import ray

    threshold, *_ = ray.get(ray.remote(lambda: gc.get_threshold()).remote())
    assert threshold == NEW_OBJECTS


def test_evaluation_depends_on_its_seed_alone_and_disturbs_no_rollout(engine, questions, running):
    def evaluate(seed):
        responses = engine.generate_for_evaluation(questions[:3], 2, 0.6, 8, seed)
        assert [len(entry) for entry in responses] == [2, 2, 2]
        return [response.token_ids.tolist() for item in responses for response in item]

    first = evaluate(1)
    tokens = [
        trajectory.token_ids.tolist()
        for trajectory in engine.rollout([RolloutRequest(questions[0], 4)])[0].trajectories
    ]
    assert evaluate(1) == first
    assert evaluate(2) != first
    engine.restore(running[1])
    again = engine.rollout([RolloutRequest(questions[0], 4)])[0].trajectories
    assert [item.token_ids.tolist() for item in again] == tokens


def test_rollouts_that_stay_in_transfer_queue_are_trained_as_those_that_are_sent_again(
    engine, running, monkeypatch, tmp_path
):
    import transfer_queue as tq

    from exgrpo_core.verl_plugin import trainer
    from exgrpo_core.verl_plugin.rows import KeptRows

    changes = SMALL | {"entropy_coefficient": 0.01}
    config = dataclasses.replace(CONFIG, **changes)
    make_blocks = trainer.make_blocks

    def three_steps(folder):
        engine.restore(running[1])
        state = ExGRPOState.create(folder, make_questions(8), config)
        reports = [exgrpo_step(state, engine, config) for _ in range(3)]
        metrics = [
            {name: value for name, value in report.metrics.items() if not name.startswith("seconds")}
            for report in reports
        ]
        log_probs = [item.log_probs.tolist() for group in reports[-1].groups for item in group.trajectories]
        return [*metrics, {"log_probs": log_probs}]

    num_sent = []

    def count_rows(rows, num_ranks, columns, options):
        if "advantages" in columns:
            num_sent.append(sum(hasattr(row, "token_ids") for row in rows))
        return make_blocks(rows, num_ranks, columns, options)

    monkeypatch.setattr(trainer, "make_blocks", count_rows)
    kept = three_steps(tmp_path / "kept")
    num_replayed = sum(metrics["replay/num_replayed"] for metrics in kept[:3])
    assert sum(num_sent) == num_replayed > 0
    num_sent.clear()
    monkeypatch.setattr(KeptRows, "find", lambda *_: None)
    pairs = zip(kept, three_steps(tmp_path / "sent"), strict=True)
    different = {name: (one[name], two[name]) for one, two in pairs for name in one if one[name] != two[name]}
    # The sampler's log-probs depend on which requests it answers together.
    assert not different.keys() - {"generator/log_prob_gap", "generator/log_prob_gap_max"}, different
    assert sum(num_sent) == 3 * config.batch_size * config.rollouts_per_question
    assert not any((tq.kv_list() or {}).values())


def test_what_does_not_reach_the_loss_is_an_error_with_the_numbers(engine, questions, monkeypatch):
    from exgrpo_core.verl_plugin import trainer

    groups = engine.rollout([RolloutRequest(question, 2) for question in questions[:2]])
    mini_batch = MiniBatch(training_rows(groups, [1.0, -1.0] * 2, is_replayed=True), 2)
    send = trainer.make_blocks

    def forget_replay(rows, *arguments):
        none = {"is_replayed": np.zeros(1, dtype=np.float32)}
        return send([dataclasses.replace(row, columns=row.columns | none) for row in rows], *arguments)

    monkeypatch.setattr(trainer, "make_blocks", forget_replay)
    num_tokens = mini_batch.num_tokens
    with pytest.raises(EngineError, match=rf"num_fresh = {num_tokens}\.0, expected 0 of 4 rows"):
        engine.update([mini_batch], OBJECTIVES["experiential"])


def test_other_tokens_than_were_stored_are_an_error(engine, questions, monkeypatch):
    from exgrpo_core.verl_plugin import trainer

    (group,) = engine.rollout([RolloutRequest(questions[0], 2)])
    send = trainer.make_blocks

    def retokenize(rows, *arguments):
        changed = rows[-1].token_ids.copy()
        changed[-1] = (changed[-1] + 1) % 7
        return send([*rows[:-1], dataclasses.replace(rows[-1], token_ids=changed)], *arguments)

    monkeypatch.setattr(trainer, "make_blocks", retokenize)
    with pytest.raises(EngineError, match="row 1 of 2: "):
        engine.entropies(*stored([group]))


def test_too_long_prompt_and_a_folder_without_a_checkpoint_are_refused(engine, questions, tmp_path):
    long = dataclasses.replace(questions[0], prompt_ids=np.arange(17, dtype=np.int32))
    with pytest.raises(EngineError, match=questions[0].question_id):
        engine.rollout([RolloutRequest(long, 2)])
    with pytest.raises(EngineError, match=r"engine\.json"):
        engine.restore(tmp_path / "nothing")


def test_failed_rollout_is_tried_again_then_its_group_is_left_out_up_to_a_share(engine, questions, tmp_path):
    once = dataclasses.replace(questions[1], answer=str(tmp_path / "seen"))
    never = dataclasses.replace(questions[2], answer="fail")
    requests = [RolloutRequest(question, 2) for question in (questions[0], once, never, questions[3])]
    with pytest.raises(EngineError, match=r"1 of 4 questions.* q2"):
        engine.rollout(requests)
    engine._max_failed_share = 0.25
    (tmp_path / "seen").unlink()
    groups = engine.rollout(requests)
    assert [group.question.index for group in groups] == [0, 1, 2, 3]
    assert [len(group.trajectories) for group in groups] == [2, 2, 0, 2]
    assert [trajectory.question_index for group in groups for trajectory in group.trajectories] == [0, 0, 1, 1, 3, 3]
    with pytest.raises(EngineError, match="1 of 1 questions"):
        engine.rollout([RolloutRequest(never, 2)])
    assert [len(group.trajectories) for group in engine.rollout(requests[:1])] == [2]


def test_death_of_the_agent_loop_is_an_error_not_a_wait(engine, questions, monkeypatch):
    """Last: the engine is of no use afterwards."""
    import ray
    from ray.exceptions import RayError

    trainer = engine.trainer
    dispatch = trainer.agent_loop_manager.generate_sequences

    def dispatch_and_kill(batch):
        dispatch(batch)
        for worker in trainer.agent_loop_manager.agent_loop_workers:
            ray.kill(worker)

    monkeypatch.setattr("exgrpo_core.verl_plugin.rollout_queue.HEALTH_CHECK_SECONDS", 1.0)
    monkeypatch.setattr(trainer.agent_loop_manager, "generate_sequences", dispatch_and_kill)
    with pytest.raises((RayError, EngineError)):
        engine.rollout([RolloutRequest(question, 4) for question in questions])
