import hashlib
import shutil

import numpy as np
import pytest

from exgrpo.jobs.actions.replay.facts import Outcome
from exgrpo.jobs.actions.replay.update import _metric_facts, execute_updates
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo_core.policy_optimization import objective
from tests.jobs.actions.replay.trained_runs import trained

pytestmark = pytest.mark.slow


def executed(root, steps, *settings, run_id="trained"):
    with open_fresh_index(root, None) as database:
        return execute_updates(database, root, run_id, list(steps), settings)


def different(root, steps, *settings):
    return {row.compared for row in executed(root, steps, *settings) if row.outcome is Outcome.DIFFERS}


def contents(folder):
    return {
        path.relative_to(folder): hashlib.blake2b(path.read_bytes()).digest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """A run of twenty steps that was stopped and resumed, only read."""
    return trained(tmp_path_factory.mktemp("resumed"), "num_steps=20", stops=[11])


def test_twenty_steps_are_equal_bit_for_bit_after_a_resume_too_and_no_file_changes(resumed):
    before = contents(resumed.path)
    rows = executed(resumed.path.parent, range(1, 21))
    assert {row.outcome for row in rows} == {Outcome.SAME}
    weights = [row for row in rows if row.compared == "weights"]
    assert len(weights) == 20
    assert all(row.num_compared > 100_000 and row.largest_difference == 0.0 for row in weights)
    assert any(row.compared == "ratio/replayed_mean" for row in rows)
    assert contents(resumed.path) == before


@pytest.mark.parametrize(
    "settings",
    [
        ['model.lora={"rank": 2}'], ["algorithm.kl_coefficient=0.01", "algorithm.entropy_coefficient=0.001"],
        [
            'data.rewards={"answer": 0.9, "format": 0.1}', "algorithm.reward_kind=continuous",
            "algorithm.start_pass_rate=null",
        ],
        ["algorithm.experience_ratio=0"],
    ],
)  # fmt: skip
def test_no_step_of_other_runs_differs(tmp_path, settings):
    trained(tmp_path, *settings)
    assert {row.outcome for row in executed(tmp_path, range(1, 6))} == {Outcome.SAME}


def mask_off_by_one(inputs):
    inputs.response_mask[0] = False


def other_shaping(inputs):
    inputs.advantages[inputs.is_replayed] *= 0.99


def stale_log_probs(inputs):
    inputs.behavior_log_probs[~inputs.is_replayed] -= 0.004


@pytest.mark.parametrize("fault", [mask_off_by_one, other_shaping, stale_log_probs])
def test_a_fault_in_the_loss_is_found_there(tmp_path, monkeypatch, fault):
    from exgrpo.jobs.training.engines.embedded import update

    def faulty(inputs, *others):
        fault(inputs)
        return objective.exgrpo_loss(inputs, *others)

    monkeypatch.setattr(update, "exgrpo_loss", faulty)
    trained(tmp_path)
    monkeypatch.undo()
    found = different(tmp_path, [5])
    assert any(name.startswith(("loss/", "ratio/")) for name in found)
    assert "weights" in found


def test_a_gradient_that_is_not_clipped_is_found_in_the_weights_alone(tmp_path, monkeypatch):
    from torch import nn

    clip = nn.utils.clip_grad_norm_
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda parameters, _: clip(parameters, 1e9))
    trained(tmp_path, "optim.max_gradient_norm=0.001", "algorithm.mini_batch_size=8")
    monkeypatch.undo()
    assert different(tmp_path, [3]) == {"weights"}


def test_a_weight_that_changed_after_its_step_is_found_in_that_step_alone(tmp_path, monkeypatch):
    from exgrpo.jobs.training.engines.embedded.update import PolicyUpdater

    update, num_done = PolicyUpdater.update, []

    def changed(self, *values):
        metrics = update(self, *values)
        num_done.append(1)
        if len(num_done) == 3:
            next(iter(self._policy.model.parameters())).data.view(-1)[7] += 1e-4
        return metrics

    monkeypatch.setattr(PolicyUpdater, "update", changed)
    trained(tmp_path)
    monkeypatch.undo()
    rows = [row for row in executed(tmp_path, range(1, 6)) if row.outcome is Outcome.DIFFERS]
    assert [(row.step, row.compared, row.num_different) for row in rows] == [(3, "weights", 1)]
    assert rows[0].note.endswith("differs first, at place 7.")


def test_another_setting_shows_what_the_same_rollouts_would_have_given(resumed):
    root = resumed.path.parent
    assert different(root, [5], "optim.learning_rate=0.5") >= {"weights"}
    assert different(root, [5], "algorithm.shaping_beta=0.9") >= {"loss/policy", "ratio/shaped_mean", "weights"}
    [weights] = executed(root, [5], "algorithm.rollouts_per_question=2")
    assert weights.outcome is Outcome.UNKNOWN
    assert "would ask for" in weights.note


@pytest.mark.parametrize(
    ("settings", "step", "sentence"),
    [
        (["recording.token_data=successes"], 2, "recording.token_data: all"),
        (["checkpoint_interval=5"], 3, "no checkpoint of step 2"),
    ],
)
def test_what_is_missing_is_said(tmp_path, settings, step, sentence):
    trained(tmp_path, *settings)
    [weights] = executed(tmp_path, [step])
    assert weights.outcome is Outcome.UNKNOWN
    assert sentence in weights.note


def test_a_damaged_checkpoint_is_named(resumed, tmp_path):
    run = RunDirectory(shutil.copytree(resumed.path, tmp_path / resumed.run_id))
    path = run.checkpoints_path / "step-00000002" / "policy" / "model.safetensors"
    values = np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()
    values[-1] ^= 1
    path.write_bytes(values.tobytes())
    [weights] = executed(tmp_path, [3])
    assert "model.safetensors" in weights.note


def test_a_model_that_is_gone_is_said_and_nothing_else_is_trained_instead(resumed, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(resumed.checkpoints_path / "step-00000001" / "policy", copy)
    begun = trained(tmp_path, "num_steps=2", f"model.source={copy}", run_id="begun")
    shutil.rmtree(copy)
    names = sorted(path.name for path in begun.checkpoints_path.iterdir())
    [weights] = executed(tmp_path, [1], run_id="begun")
    assert weights.outcome is Outcome.UNKNOWN
    assert "copy" in weights.note
    assert sorted(path.name for path in begun.checkpoints_path.iterdir()) == names


def test_a_metric_that_was_not_recorded_is_not_called_different():
    facts = list(_metric_facts({"loss/policy": 1.0}, {"loss/policy": 1.0, "loss/kl": 0.1, "seconds/step": 2.0}))
    assert [(fact.compared, fact.outcome) for fact in facts] == [
        ("loss/kl", Outcome.UNKNOWN), ("loss/policy", Outcome.SAME)
    ]  # fmt: skip
