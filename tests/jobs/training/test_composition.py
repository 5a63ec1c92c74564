import json
from pathlib import Path

import pytest

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import parse_spec
from exgrpo.jobs.tasks.chains.question_set import make_questions
from exgrpo.jobs.training.composition import run_training
from exgrpo_core.recording.run_status import RunStatus
from tests.faults.small_training import StepControl
from tests.jobs.training.conftest import GENERATION, SMALL

pytestmark = pytest.mark.slow


class MemoryRecorder:
    def __init__(self) -> None:
        self.question_sets: dict[str, int] = {}
        self.steps = []
        self.evaluations = []
        self.checkpoints: list[int] = []

    def questions(self, questions, question_set):
        self.question_sets[question_set] = len(questions)

    def step(self, report):
        self.steps.append(report)

    def evaluation(self, record):
        self.evaluations.append(record)

    def checkpoint(self, step, path: Path):
        assert path.is_dir()
        self.checkpoints.append(step)

    def ignore(self, *_):
        pass

    status = settle = record = close = ignore


def new_run(tmp_path, model, lora=None, **changes):
    content = {
        "model": {"source": str(model), "device": "cpu", "lora": lora},
        "data": {"num_questions": 12, "num_held_out": 4},
        "algorithm": SMALL | {"mini_batch_size": 2, "entropy_coefficient": 0.001}, "num_steps": 4,
        "validation": {"interval": 2, "samples_per_question": 2, "num_training_questions": 3}, "checkpoint_interval": 2,
    }  # fmt: skip
    return RunDirectory.create(tmp_path, parse_spec(content | changes, "test"))


def train(run, control=None):
    recorder = MemoryRecorder()
    return run_training(run.spec(), run, recorder, control or StepControl()), recorder


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model):
    run = new_run(tmp_path_factory.mktemp("finished"), model)
    status, recorder = train(run)
    assert status is RunStatus.FINISHED
    return run, recorder


def test_benchmarks_are_scored_as_often_as_held_out_questions(tmp_path, model):
    run, recorder = new_run(tmp_path, model), MemoryRecorder()

    def read_benchmarks(spec, tokenizer):
        return {"aime24": make_questions(3, spec.data.seed + 1, tokenizer)}

    run_training(run.spec(), run, recorder, StepControl(), read_benchmarks)
    scored = [(item.question_set, item.step, len(item.num_correct)) for item in recorder.evaluations]
    assert [item for item in scored if item[0] == "aime24"] == [("aime24", step, 3) for step in (0, 2, 4)]
    assert [step for name, step, _ in scored if name == "held_out"] == [0, 2, 4]


def kept_generation_settings(run) -> dict[str, object]:
    path = run.checkpoints_path / "step-00000004" / "policy" / "generation_config.json"
    return {name: value for name, value in json.loads(path.read_text()).items() if name in GENERATION}


def test_run_records_questions_steps_evaluations_and_checkpoints(finished):
    run, recorder = finished
    assert recorder.question_sets == {"training": 12, "held_out": 4}
    assert [report.step for report in recorder.steps] == [1, 2, 3, 4]
    scored = [(record.step, record.question_set, len(record.num_correct)) for record in recorder.evaluations]
    assert scored == [
        (0, "training", 3), (0, "held_out", 4), (2, "held_out", 4), (4, "training", 3), (4, "held_out", 4)
    ]  # fmt: skip
    assert recorder.checkpoints == [2, 4]
    assert kept_generation_settings(run) == GENERATION


def test_control_with_random_rewards_trains_and_is_scored_by_answers(tmp_path, model):
    run = new_run(tmp_path, model, data={"num_questions": 12, "num_held_out": 4, "rewards": {"random": 1.0}})
    status, recorder = train(run)
    assert status is RunStatus.FINISHED
    steps = [report.metrics for report in recorder.steps]
    assert all(item.reward_parts == {"random": item.reward} for item in recorder.steps[0].groups[0].trajectories)
    assert all(metrics["reward/random"] == pytest.approx(metrics["reward/mean"]) for metrics in steps)
    assert 0 < sum(metrics["reward/random"] for metrics in steps) < 4
    assert max(metrics["optim/gradient_norm"] for metrics in steps) > 0
    assert all(sum(record.num_correct) == 0 for record in recorder.evaluations)


def test_run_with_adapters_resumes_bit_for_bit_from_checkpoints_of_adapters_alone(tmp_path, model):
    settings = {"lora": {"rank": 2}, "optim": {"learning_rate": 0.01}}
    whole, stopped = new_run(tmp_path, model, **settings), new_run(tmp_path, model, **settings)
    train(whole)
    train(stopped, StepControl(3))
    train(stopped)
    name = "step-00000004/policy/adapter_model.safetensors"
    first, second = ((run.checkpoints_path / name).read_bytes() for run in (whole, stopped))
    assert first == second
    assert kept_generation_settings(stopped) == GENERATION
    assert not (whole.checkpoints_path / "step-00000004" / "policy" / "model.safetensors").exists()


def test_trajectories_of_a_column_join_the_groups_of_their_questions(tmp_path, model):
    algorithm = json.loads(new_run(tmp_path, model).spec_path.read_text())["algorithm"]
    algorithm |= {"uses_external_experience": True, "experience_ratio": 0.0, "max_response_tokens": 64}
    _, recorder = train(new_run(tmp_path, model, algorithm=algorithm, external_column="target"))
    groups = [group for report in recorder.steps for group in report.groups]
    replayed = [group.replays[0] for group in groups if group.has_replay]
    assert replayed
    assert all(replay.is_external for replay in replayed)
