"""Supervised fine-tuning by verl's own SFT trainer, run for real on the CPU: torchrun, FSDP2 on gloo."""

import shutil

import numpy as np
import psutil
import pytest
import torch

from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.runs.checkpoints import checkpoint_path, find_fault, list_checkpoints
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import parse_spec
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.training.engines.embedded.model import load_policy
from exgrpo.jobs.training.imitation import make_small_policy
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.training.engines.verl_ray.runs import start_worker, steps_of, wait_for, wait_for_rank, work, work_until
from tests.jobs.training.engines.verl_ray.toy_sft import RANK_MODULE
from tests.verl_on_cpu import SFT_OVERRIDES

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(1800)]

NUM_STEPS = 6
ALGORITHM = {
    "batch_size": 8,
    "mini_batch_size": 8,
    "max_prompt_tokens": 64,
    "max_response_tokens": 112,
    "experience_ratio": 0.0,
}
ONE_RANK = {"verl": {"gpus_per_node": 1, "overrides": SFT_OVERRIDES}}
WHOLE_DATA = {"algorithm": ALGORITHM | {"batch_size": 24, "mini_batch_size": 24}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    policy = make_small_policy(make_tokenizer(), num_layers=1, width=32, num_heads=2, seed=0)
    # As the paper's 7B and 8B models.
    policy.model.config.tie_word_embeddings = False
    policy.model.lm_head.weight = torch.nn.Parameter(policy.model.lm_head.weight.detach().clone())
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def new_run(root, model, **changes) -> RunDirectory:
    content = {
        "engine": "verl",
        "sft": {},
        "model": {"source": str(model), "device": "cpu"},
        "data": {"num_questions": 24, "num_held_out": 2, "max_operations": 4},
        "verl": {"gpus_per_node": 2, "overrides": SFT_OVERRIDES},
        "algorithm": ALGORITHM,
        "optim": {"learning_rate": 1e-2, "warmup_steps": 1},
        "num_steps": NUM_STEPS,
        "checkpoint_interval": 2,
    }
    return RunDirectory.create(root, parse_spec(content | changes, "test"))


def weights(run, step):
    policy = load_policy(str(checkpoint_path(run.checkpoints_path, step) / "policy"), torch.device("cpu"))
    return policy, policy.model.state_dict()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, model) -> RunDirectory:
    """A run on two ranks that was never interrupted."""
    run = new_run(tmp_path_factory.mktemp("runs"), model)
    assert work(run) == "finished"
    return run


def test_two_ranks_lower_the_loss_from_that_of_an_untrained_model(tuned):
    events = EventReader(tuned).read(max_steps=100).events
    assert [event["step"] for event in events if event["kind"] == "checkpoint"] == [2, 4, 6]
    # Without the start or a checkpoint before them.
    assert {step for step, event in steps_of(tuned).items() if "seconds/step" in event["metrics"]} <= {2, 4, 6}
    losses = [steps_of(tuned)[step]["metrics"]["loss/sft"] for step in range(1, NUM_STEPS + 1)]
    assert losses[0] == pytest.approx(np.log(len(make_tokenizer())), rel=0.1)
    assert losses[-1] < losses[0] - 0.3


def test_checkpoints_are_whole_hugging_face_models_with_the_models_own_tokenizer(tuned):
    checkpoints = list_checkpoints(tuned.checkpoints_path)
    assert [path.name for path in checkpoints] == ["step-00000006", "step-00000004", "step-00000002"]
    assert [find_fault(path) for path in checkpoints] == [None, None, None]
    policy, after = weights(tuned, 6)
    _, before = weights(tuned, 4)
    assert not all(torch.equal(tensor, before[name]) for name, tensor in after.items())
    assert policy.tokenizer.encode("5;a+3=8;") == make_tokenizer().encode("5;a+3=8;")


def test_run_that_lost_its_last_checkpoint_goes_on_from_the_one_before_to_the_same_weights(tuned, tmp_path, model):
    run = new_run(tmp_path, model)
    # In the middle of a round: at a round's end verl's data loader, resumed, shuffles the next one differently.
    shutil.copytree(tuned.checkpoints_path / "step-00000004", run.checkpoints_path / "step-00000004")
    assert work(run) == "finished"
    assert sorted(steps_of(run)) == [5, 6]
    _, expected = weights(tuned, 6)
    _, found = weights(run, 6)
    assert all(torch.allclose(tensor, expected[name], atol=1e-6) for name, tensor in found.items())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, model) -> RunDirectory:
    """A run on one rank, each of whose steps takes all the data, that was asked to stop after step 6."""
    run = new_run(
        tmp_path_factory.mktemp("runs"), model, **ONE_RANK, **WHOLE_DATA, num_steps=3000, checkpoint_interval=4
    )
    assert work_until(run, 6) == "stopped"
    return run


def test_first_step_has_loss_and_gradient_of_the_embedded_engine(stopped, tmp_path, model):
    embedded = new_run(tmp_path, model, engine="embedded", verl={}, **WHOLE_DATA, num_steps=1)
    assert work(embedded) == "finished"
    found, expected = steps_of(stopped)[1], steps_of(embedded)[1]
    for name in ("loss/sft", "optim/gradient_norm"):
        assert found["metrics"][name] == pytest.approx(expected["metrics"][name], rel=1e-4)


def test_stop_ends_every_process_and_leaves_a_whole_checkpoint_to_go_on_from(stopped):
    newest = int(list_checkpoints(stopped.checkpoints_path)[0].name.removeprefix("step-"))
    assert find_fault(checkpoint_path(stopped.checkpoints_path, newest)) is None
    # It ends at once: steps after the newest checkpoint are done again.
    assert 4 <= newest <= max(steps_of(stopped)) < newest + 2 * 4


@pytest.fixture
def waiting(tmp_path, model):
    """A worker whose two ranks have started and wait: run, process and mark."""
    run = new_run(tmp_path, model)
    process, mark = start_worker(run, "tests.jobs.training.engines.verl_ray.toy_sft")
    wait_for_rank(process, mark, RANK_MODULE)
    return run, process, mark


def test_no_rank_goes_on_when_the_worker_is_killed(waiting):
    _, process, mark = waiting
    process.kill()
    wait_for(process, mark)


def test_end_of_torchrun_ends_every_rank_and_is_told(waiting):
    run, process, mark = waiting
    [torchrun] = psutil.Process(process.pid).children()
    torchrun.kill()
    wait_for(process, mark)
    outcome = read_outcome(run.attempt_path(1))
    assert outcome.status is RunStatus.FAILED
    assert "exit code -9" in outcome.reason
