import json
from pathlib import Path

import pytest

from exgrpo.jobs.actions.evaluations import asked_and_graded, plan_evaluation, resolve_evaluation, resolve_target
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.evaluation.model_folder import model_source
from exgrpo.jobs.evaluation.protocols import benchmarks_folder
from exgrpo.jobs.runs.checkpoints import checkpoint_path, list_steps, save_checkpoint
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.recording.event_reader import best_checkpoint
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.train import DataSpec, RecordingSpec, SpecError, TrainSpec
from exgrpo.jobs.training.training_loop import keep_checkpoint
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.recorder import EvaluationRecord
from tests.data_files import verl_row, write_lines
from tests.faults.small_training import StepControl
from tests.jobs.evaluation.tiny_evaluations import save_tiny_model, tiny_evaluation

MATH = (BenchmarkChoice(name="math500"),)


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    algorithm = ExGRPOConfig(max_response_tokens=48)
    spec = TrainSpec(name="mine", algorithm=algorithm)
    run = RunDirectory.open(tmp_path / "runs", queue_job(tmp_path / "runs", spec))
    for step in (5, 10):
        save_checkpoint(run.checkpoints_path, step, write_policy)
    return run


def write_policy(checkpoint) -> None:
    save_tiny_model(checkpoint.policy)
    (checkpoint.policy / "optimizer.safetensors").write_bytes(b"large")


def write_shards(checkpoint) -> None:
    folder = checkpoint.policy / "workers"
    folder.mkdir(parents=True)
    for name in ("model_world_size_1_rank_0.pt", "optim_world_size_1_rank_0.pt", "fsdp_config.json"):
        (folder / name).write_bytes(b"shard")


def test_best_checkpoint_is_that_of_the_highest_held_out_score_and_the_choice_is_recorded(run):
    with pytest.raises(CommandError, match=r"mine@best: no checkpoint of .* has a held-out score"):
        resolve_target(run.path.parent, "mine@best")
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    for step, question_set, num_correct in (
        (0, "held_out", 4), (5, "held_out", 2), (10, "held_out", 1), (10, "aime24", 4), (12, "held_out", 3)
    ):  # fmt: skip
        recorder.evaluation(EvaluationRecord(step, question_set, ["a"], [num_correct], 4, 1.0, 0.0))
    recorder.close()
    best, last, by_step = (resolve_target(run.path.parent, f"mine@{text}") for text in ("best", "last", "5"))
    assert (best.step, best.chosen_as) == (5, "best")
    assert (last.step, last.chosen_as) == (10, "last")
    assert (by_step.run_id, by_step.step, by_step.chosen_as) == (run.run_id, 5, None)
    assert Path(last.source) == checkpoint_path(run.checkpoints_path, 10) / "policy"


def test_a_best_checkpoint_that_is_gone_is_named(run):
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    for step, num_correct in ((3, 4), (5, 2)):
        recorder.evaluation(EvaluationRecord(step, "held_out", ["a"], [num_correct], 4, 1.0, 0.0))
    recorder.checkpoint(3, checkpoint_path(run.checkpoints_path, 3))
    recorder.close()
    with pytest.raises(CommandError, match=r"of step 3, is gone; there are: 5, 10"):
        resolve_target(run.path.parent, "mine@best")
    assert best_checkpoint(run) == 3


def test_pruning_keeps_the_best_checkpoint_that_exists_though_a_better_one_is_gone(run):
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    for step, num_correct in ((3, 4), (5, 2), (10, 1)):
        recorder.evaluation(EvaluationRecord(step, "held_out", ["a"], [num_correct], 4, 1.0, 0.0))
    recorder.checkpoint(3, checkpoint_path(run.checkpoints_path, 3))
    spec = TrainSpec(name="mine", num_checkpoints_kept=1)
    keep_checkpoint(run.checkpoints_path, 12, write_policy, spec, recorder, StepControl())
    recorder.close()
    assert list_steps(run.checkpoints_path) == [5, 12]


def test_folder_and_hub_name_are_models_of_no_run(run, tmp_path):
    folder = tmp_path / "model@best"
    folder.mkdir()
    for source in (str(folder), "owner/model"):
        assert resolve_target(run.path.parent, source) == EvalModelSpec(source=source)


@pytest.mark.parametrize(
    ("fields", "name"),
    [({"template": "chat"}, "template"), ({"benchmarks": [{"template": "chat"}]}, "benchmarks.mine.template")],
)
def test_a_chat_template_that_the_model_lacks_is_refused_before_the_start(run, tmp_path, fields, name):
    (tmp_path / "mine.jsonl").write_text('{"problem": "1 + 1", "answer": "2"}\n')
    mine = {"name": "mine", "source": str(tmp_path / "mine.jsonl")}
    benchmarks = [mine | choice for choice in fields.get("benchmarks", [{}])]
    spec = plan_evaluation(run.path.parent, "mine@5", fields | {"benchmarks": benchmarks}, "test")
    with pytest.raises(SpecError, check=lambda error: error.fields == (name,)):
        queue_job(run.path.parent, spec)


def test_checkpoint_that_is_damaged_or_not_there_is_refused(run):
    (checkpoint_path(run.checkpoints_path, 5) / "policy" / "config.json").write_text("{}")
    for target, reason in (("mine@7", "5, 10"), ("mine@first", "5, 10"), ("mine@5", r"config\.json")):
        with pytest.raises(CommandError, match=reason):
            resolve_target(run.path.parent, target)


def test_evaluation_keeps_the_checkpoints_model_without_its_optimizer(run):
    runs_root = run.path.parent
    spec = tiny_evaluation("x", MATH).model_copy(update={"model": resolve_target(runs_root, "mine@5")})
    evaluation = RunDirectory.open(runs_root, queue_job(runs_root, spec))
    names = {path.name for path in (evaluation.path / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert "optimizer.safetensors" not in names
    assert model_source(spec, evaluation) == str(evaluation.path / "model")
    assert evaluation.read_run_info()["parent_run_id"] == run.run_id


def test_sharded_checkpoint_is_kept_for_verls_merger_whose_absence_is_said(run, monkeypatch, tmp_path):
    save_checkpoint(run.checkpoints_path, 15, write_shards)
    runs_root = run.path.parent
    spec = tiny_evaluation("x", MATH).model_copy(update={"model": resolve_target(runs_root, "mine@15")})
    evaluation = RunDirectory.open(runs_root, queue_job(runs_root, spec))
    names = {path.name for path in (evaluation.path / "shards").iterdir()}
    assert names == {"model_world_size_1_rank_0.pt", "fsdp_config.json"}
    monkeypatch.setenv("EXGRPO_VERL_PYTHON", str(tmp_path / "no-python"))
    with pytest.raises(TrainingError):
        model_source(spec, evaluation)


def test_checkpoint_without_a_model_leaves_no_evaluation_behind(run):
    save_checkpoint(run.checkpoints_path, 15, lambda own: own.policy.mkdir() or (own.policy / "a").write_text("a"))
    runs_root = run.path.parent
    before = set(runs_root.iterdir())
    spec = tiny_evaluation("x", MATH).model_copy(update={"model": resolve_target(runs_root, "mine@15")})
    with pytest.raises(CommandError):
        queue_job(runs_root, spec)
    assert set(runs_root.iterdir()) == before


SUMS = [{"problem": f"What is {number}+{number}?", "answer": 2 * number} for number in range(3)]


@pytest.fixture
def sums(run) -> Path:
    path = benchmarks_folder(run.path.parent) / "sums.jsonl"
    path.parent.mkdir(parents=True)
    return write_lines(path, SUMS)


def plan(run, target="mine@last", **fields) -> EvalSpec:
    return plan_evaluation(run.path.parent, target, {"benchmarks": [{"name": "sums"}]} | fields, "test")


def test_checkpoint_is_scored_by_its_runs_template_and_length_unless_others_are_asked_for(run, sums, tmp_path):
    spec = plan(run, template=None)
    assert (spec.template, spec.max_response_tokens) == ("none", 48)
    assert spec.benchmarks == (BenchmarkChoice(name="sums", source=str(sums)),)
    changed = plan(run, template="compact", max_response_tokens=5)
    assert (changed.template, changed.max_response_tokens) == ("compact", 5)
    other = plan(run, target=str(tmp_path))
    assert (other.template, other.max_response_tokens) == ("paper", 8192)


@pytest.mark.usefixtures("sums")
def test_checkpoint_of_a_run_that_reward_parts_trained_is_scored_by_them_too(run):
    assert plan(run).reward_parts == ()
    spec = TrainSpec(name="random", data=DataSpec(rewards={"random": 1.0}))
    control = RunDirectory.open(run.path.parent, queue_job(run.path.parent, spec))
    save_checkpoint(control.checkpoints_path, 5, write_policy)
    assert plan(run, target="random@5").reward_parts == ("random",)
    assert plan(run, reward_parts=["answer", "format"]).reward_parts == ("answer", "format")
    with pytest.raises(CommandError, match="reward_parts"):
        plan(run, reward_parts=["style"])


@pytest.mark.usefixtures("sums")
def test_what_cannot_fit_into_the_models_context_is_refused_before_anything_is_written(run):
    before = set(run.path.parent.iterdir())
    message = r"longest prompt \(12 tokens\) .* 16,380 do not fit .* of 16,384; set max_response_tokens to 16,372"
    with pytest.raises(SpecError, match=message):
        queue_job(run.path.parent, plan(run, max_response_tokens=16380))
    assert set(run.path.parent.iterdir()) == before
    assert queue_job(run.path.parent, plan(run, max_response_tokens=16372))


def test_all_that_is_wrong_is_said_at_once_before_anything_is_written(run, sums):
    sums.write_text(json.dumps(SUMS[0]) + '\n{"problem": "What is 1+1?"}\n')
    before = set(run.path.parent.iterdir())
    spec = plan(run, template="chat")
    refused = resolve_evaluation(spec, run.path.parent).refusals
    assert [refusal.mistake.partition(":")[0] for refusal in refused] == ["sums.jsonl, row 2, answer", "template"]
    with pytest.raises(SpecError, match=r"sums.jsonl, row 2, answer: .* template: expected another"):
        queue_job(run.path.parent, spec)
    assert set(run.path.parent.iterdir()) == before


DAMAGED_SETTINGS = [
    (name, content, f"put the model's own {name} in its place")
    for name in ("generation_config.json", "tokenizer_config.json") for content in ("[1", "[]", '{"a": 1, "a": 2}')
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", '{"hidden_size": -8}', "hidden_size: expected a whole number"), ("config.json", "[1", "JSON"),
        ("config.json", "[]", "config.json"), *DAMAGED_SETTINGS,
        *(("tokenizer.json", content, "tokenizer.json: is no tokenizer (")
          for content in ("", "[1", '{"model": 5}', "\x00")),
    ],
)  # fmt: skip
def test_a_damaged_file_of_the_model_is_among_all_reasons(tmp_path, sums, name, content, words):
    save_tiny_model(tmp_path / "model")
    (tmp_path / "model" / name).write_text(content)
    sums.write_text(json.dumps(SUMS[0]) + '\n{"problem": "What is 1+1?"}\n')
    fields = {"benchmarks": [{"name": "sums", "source": str(sums)}]}
    spec = plan_evaluation(tmp_path / "runs", str(tmp_path / "model"), fields, "test")
    refused = [refusal.mistake for refusal in resolve_evaluation(spec, tmp_path / "runs").refusals]
    assert refused[0].startswith("sums.jsonl, row 2, answer")
    assert words in refused[-1]
    assert len(refused) == 2


def test_a_model_is_asked_in_the_template_that_its_evaluation_plans(run, tmp_path):
    (tmp_path / "sums.jsonl").write_text('{"problem": "1 + 1", "answer": "2"}\n')
    choice = {"name": "sums", "source": str(tmp_path / "sums.jsonl")}
    for target, template in (("mine@5", "none"), ("owner/model", "paper")):
        planned = plan_evaluation(run.path.parent, target, {"benchmarks": [choice]}, "test").template
        assert asked_and_graded(run.path.parent, target) == (planned, "auto")
        assert planned == template


def write_rows(path, *pairs):
    return str(write_lines(path, [verl_row(*pair) for pair in pairs]))


def test_own_data_are_graded_as_the_run_is_unless_they_say_otherwise(tmp_path):
    mine = {"source": write_rows(tmp_path / "mine.jsonl", ("Which one? A) 1 B) 2", "B"))}
    sums = {"source": write_rows(tmp_path / "sums.jsonl", ("1/2 + 8?", "8.5")), "answer_kind": "math"}
    source = write_rows(tmp_path / "train.jsonl", *((f"Which one? A) {number} B) 20", "A") for number in range(20)))
    spec = TrainSpec(
        model={"source": "answer-format-warm"},
        data=DataSpec(source=source, answer_kind="choice", num_questions=16, num_held_out=4),
        algorithm=ExGRPOConfig(batch_size=8, mini_batch_size=4, max_response_tokens=16),
        validation={"benchmarks": {"mine": mine, "sums": sums, "arc_c": None}},
    )
    run = RunDirectory.open(tmp_path / "runs", queue_job(tmp_path / "runs", spec))
    save_checkpoint(run.checkpoints_path, 5, write_policy)
    validated = run.spec().validation.benchmarks
    benchmarks = [{"name": "mine", **mine}, {"name": "sums", **sums}, {"name": "arc_c"}]
    scored = {
        target: {choice.name: choice.answer_kind for choice in planned.benchmarks}
        for target in (f"{run.run_id}@5", "owner/model")
        for planned in [plan_evaluation(run.path.parent, target, {"benchmarks": benchmarks}, "test")]
    }
    graded = {"mine": "choice", "sums": "math", "arc_c": None}
    assert {name: benchmark.answer_kind for name, benchmark in validated.items()} == graded
    assert scored == {f"{run.run_id}@5": graded, "owner/model": graded | {"mine": None}}
    assert asked_and_graded(run.path.parent, f"{run.run_id}@5")[1] == "choice"
