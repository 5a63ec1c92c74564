"""Whole runs of a tiny untrained model, from a specification to a recorded end."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from jobs.recording.recorder import EvaluationRecord
from jobs.runs.checkpoints import list_checkpoints, save_checkpoint
from jobs.runs.control import RunStatus, TrainingError
from jobs.runs.directory import RunDirectory
from jobs.specs.train import parse_spec
from jobs.tasks.chains.demonstrators import make_tokenizer
from jobs.tasks.chains.question_set import make_questions
from jobs.training.composition import run_training
from jobs.training.imitation import make_small_policy


class MemoryRecorder:
    """Keeps in memory what a run records."""

    def __init__(self) -> None:
        self.question_sets: dict[str, int] = {}
        self.steps = []
        self.evaluations: list[EvaluationRecord] = []
        self.checkpoints: list[int] = []
        self.others: list[tuple[str, dict[str, str]]] = []

    def status(self, status, reason=""):
        pass

    def questions(self, questions, question_set):
        self.question_sets[question_set] = len(questions)

    def step(self, report):
        self.steps.append(report)

    def settle(self):
        pass

    def evaluation(self, record):
        self.evaluations.append(record)

    def checkpoint(self, step, path: Path):
        assert path.is_dir()
        self.checkpoints.append(step)

    def record(self, kind, fields):
        self.others.append((kind, fields))

    def close(self):
        pass


class StopAfter:
    """Asks for a stop once so many steps are done."""

    def __init__(self, num_steps=None) -> None:
        self.num_steps = num_steps
        self.beats = []

    def stop_requested(self):
        return self.num_steps is not None and self.beats[-1] >= self.num_steps

    def heartbeat(self, step):
        self.beats.append(step)

    def phase(self, _phase):
        return contextlib.nullcontext()


GENERATION = {"do_sample": False, "temperature": 0.9, "top_p": 0.6}
"""Settings of a model that transformers loads and refuses to save."""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    policy = make_small_policy(make_tokenizer(), num_layers=1, width=16, num_heads=2, seed=0)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(settings | GENERATION))
    return folder


def new_run(tmp_path, model, lora=None, **changes):
    content = {
        "model": {"source": str(model), "device": "cpu", "lora": lora},
        "data": {"num_questions": 12, "num_held_out": 4},
        "algorithm": {
            "batch_size": 4,
            "mini_batch_size": 2,
            "rollouts_per_question": 2,
            "max_prompt_tokens": 64,
            "max_response_tokens": 8,
            "entropy_coefficient": 0.001,
        },
        "num_steps": 4,
        "validation": {"interval": 2, "samples_per_question": 2, "num_training_questions": 3},
        "checkpoint_interval": 2,
    }
    return RunDirectory.create(tmp_path, parse_spec(content | changes, "test"))


def train(run, control=None):
    recorder = MemoryRecorder()
    return run_training(run.spec(), run, recorder, control or StopAfter()), recorder


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model):
    """A finished run and what it recorded, only read."""
    run = new_run(tmp_path_factory.mktemp("finished"), model)
    status, recorder = train(run)
    assert status is RunStatus.FINISHED
    return run, recorder


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished run, to damage."""
    return RunDirectory(Path(shutil.copytree(finished[0].path, tmp_path / finished[0].run_id)))


def test_benchmarks_are_scored_as_often_as_held_out_questions(tmp_path, model):
    run, recorder = new_run(tmp_path, model), MemoryRecorder()

    def read_benchmarks(spec, tokenizer):
        return {"aime24": make_questions(3, spec.data.seed + 1, tokenizer)}

    run_training(run.spec(), run, recorder, StopAfter(), read_benchmarks)
    steps = {
        name: [item.step for item in recorder.evaluations if item.question_set == name]
        for name in ("held_out", "aime24")
    }
    assert steps == {"held_out": [0, 2, 4], "aime24": [0, 2, 4]}
    assert all(len(item.num_correct) == 3 for item in recorder.evaluations if item.question_set == "aime24")


def test_run_records_questions_steps_evaluations_and_checkpoints(finished):
    _, recorder = finished
    assert recorder.question_sets == {"training": 12, "held_out": 4}
    assert [report.step for report in recorder.steps] == [1, 2, 3, 4]
    scored = [(record.step, record.question_set, len(record.num_correct)) for record in recorder.evaluations]
    assert scored == [
        (0, "training", 3), (0, "held_out", 4), (2, "held_out", 4), (4, "training", 3), (4, "held_out", 4)
    ]  # fmt: skip
    assert recorder.checkpoints == [2, 4]


def kept_generation_settings(run) -> dict[str, object]:
    """Return the settings of the newest checkpoint that transformers refuses to save."""
    path = run.checkpoints_path / "step-00000004" / "policy" / "generation_config.json"
    return {name: value for name, value in json.loads(path.read_text()).items() if name in GENERATION}


def test_checkpoint_keeps_generation_settings_that_transformers_refuses_to_save(finished):
    assert kept_generation_settings(finished[0]) == GENERATION


def test_control_with_random_rewards_trains_and_is_scored_by_answers(tmp_path, model):
    run = new_run(tmp_path, model, data={"num_questions": 12, "num_held_out": 4, "rewards": {"random": 1.0}})
    status, recorder = train(run)
    assert status is RunStatus.FINISHED
    steps = [report.metrics for report in recorder.steps]
    assert all(metrics["reward/random"] == pytest.approx(metrics["reward/mean"]) for metrics in steps)
    assert 0 < sum(metrics["reward/random"] for metrics in steps) < 4
    assert max(metrics["optim/gradient_norm"] for metrics in steps) > 0
    assert all(sum(record.num_correct) == 0 for record in recorder.evaluations)


def test_parts_of_a_continuous_reward_are_curves_of_their_own(tmp_path, model):
    content = new_run(tmp_path / "plain", model).spec().model_dump(mode="json")
    content["data"]["rewards"] = {"random": 1.0, "format": 0.5}
    content["algorithm"] |= {"reward_kind": "continuous", "start_pass_rate": None}
    run = RunDirectory.create(tmp_path / "parts", parse_spec(content, "test"))
    metrics = [report.metrics for report in train(run)[1].steps]
    assert [item["reward/random"] + 0.5 * item["reward/format"] for item in metrics] == pytest.approx(
        [item["reward/mean"] for item in metrics]
    )


def test_stopped_run_writes_a_checkpoint_and_goes_on_where_it_was(tmp_path, model):
    run = new_run(tmp_path, model)
    status, first = train(run, StopAfter(3))
    assert status is RunStatus.STOPPED
    assert first.checkpoints == [2, 3]
    status, second = train(run)
    assert status is RunStatus.FINISHED
    assert [report.step for report in second.steps] == [4]
    assert [record.step for record in second.evaluations] == [4, 4]


def test_run_with_adapters_resumes_bit_for_bit_from_checkpoints_of_adapters_alone(tmp_path, model):
    settings = {"lora": {"rank": 2}, "optim": {"learning_rate": 0.01}}
    whole, stopped = new_run(tmp_path, model, **settings), new_run(tmp_path, model, **settings)
    train(whole)
    train(stopped, StopAfter(3))
    train(stopped)
    name = "step-00000004/policy/adapter_model.safetensors"
    first, second = ((run.checkpoints_path / name).read_bytes() for run in (whole, stopped))
    assert first == second
    assert kept_generation_settings(stopped) == GENERATION
    assert not (whole.checkpoints_path / "step-00000004" / "policy" / "model.safetensors").exists()


def test_finished_run_does_nothing_more(copied):
    status, recorder = train(copied)
    assert status is RunStatus.FINISHED
    assert recorder.steps == []


def test_only_the_newest_checkpoints_stay(tmp_path, model):
    run = new_run(tmp_path, model, checkpoint_interval=1, num_checkpoints_kept=2)
    train(run)
    assert [path.name for path in list_checkpoints(run.checkpoints_path)] == ["step-00000004", "step-00000003"]


def test_damaged_newest_checkpoint_is_passed_over(copied, caplog):
    run = copied
    (run.checkpoints_path / "step-00000004" / "policy" / "model.safetensors").write_bytes(b"")
    _, recorder = train(run)
    assert [report.step for report in recorder.steps] == [3, 4]
    assert "model.safetensors: differs from what was written" in caplog.text


def test_checkpoint_whose_buffer_cannot_be_restored_is_passed_over(copied, caplog):
    run = copied

    def write_cut(checkpoint):
        whole, no_manifest = run.checkpoints_path / "step-00000004", shutil.ignore_patterns("manifest.json")
        shutil.copytree(whole, checkpoint.path, dirs_exist_ok=True, ignore=no_manifest)
        snapshot = checkpoint.experience / "buffer.snapshot"
        snapshot.write_bytes(snapshot.read_bytes()[:-1])

    save_checkpoint(run.checkpoints_path, 4, write_cut)
    _, recorder = train(run)
    assert [report.step for report in recorder.steps] == [3, 4]
    assert "buffer.snapshot" in caplog.text


def test_run_without_a_whole_checkpoint_does_not_start_over(copied):
    run = copied
    for path in list_checkpoints(run.checkpoints_path):
        (path / "manifest.json").unlink()
    with pytest.raises(TrainingError, match="No checkpoint is whole"):
        train(run)


def test_missing_data_file_and_model_are_named(tmp_path, model):
    data = {"source": str(tmp_path / "gone.parquet"), "template": "compact"}
    with pytest.raises(TrainingError, match=r"gone\.parquet"):
        train(new_run(tmp_path, model, data=data))
    with pytest.raises(TrainingError, match=r"model\.source"):
        train(new_run(tmp_path, tmp_path / "no-model"))


def test_external_trajectories_join_their_groups(finished, tmp_path, model):
    run, recorder = finished
    question_ids = [report.groups[0].question.question_id for report in recorder.steps]
    path = tmp_path / "external.jsonl"
    rows = [{"question_id": question_id, "response": "\\boxed{1}"} for question_id in question_ids]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    algorithm = json.loads(run.spec_path.read_text())["algorithm"]
    algorithm |= {"uses_external_experience": True, "experience_ratio": 0.0}
    again = new_run(tmp_path, model, algorithm=algorithm, external_experience=str(path))
    _, recorder = train(again)
    replayed = [group for report in recorder.steps for group in report.groups if group.has_replay]
    assert {group.question.question_id for group in replayed} <= set(question_ids)
    assert replayed


def test_trajectories_of_a_column_join_the_groups_of_their_questions(tmp_path, model):
    algorithm = json.loads(new_run(tmp_path, model).spec_path.read_text())["algorithm"]
    algorithm |= {"uses_external_experience": True, "experience_ratio": 0.0, "max_response_tokens": 64}
    _, recorder = train(new_run(tmp_path, model, algorithm=algorithm, external_column="target"))
    groups = [group for report in recorder.steps for group in report.groups]
    replayed = [group.replays[0] for group in groups if group.has_replay]
    assert replayed
    assert all(replay.is_external for replay in replayed)


@pytest.mark.slow
def test_model_that_earns_nothing_runs_through_with_an_empty_buffer(tmp_path, model, shared_dir):
    data = {
        "source": str(shared_dir / "data" / "benchmarks" / "test.id.parquet"),
        "template": "compact",
        "num_questions": 16,
        "num_held_out": 2,
        "too_long_prompts": "drop",
    }
    algorithm = json.loads(new_run(tmp_path, model).spec_path.read_text())["algorithm"] | {"max_prompt_tokens": 256}
    status, recorder = train(new_run(tmp_path, model, data=data, algorithm=algorithm))
    assert status is RunStatus.FINISHED
    assert all(report.metrics["reward/mean"] == 0.0 for report in recorder.steps)
    assert recorder.steps[-1].metrics["buffer/num_questions"] == 0.0
