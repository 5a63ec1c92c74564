import errno
import json
import os
import sys
from pathlib import Path

import pytest

from exgrpo.jobs.actions import branching, run_actions
from exgrpo.jobs.actions.evaluations import resolve_target
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, load_study
from exgrpo.jobs.actions.studies.running import PendingRun, start
from exgrpo.jobs.actions.studies.sweeps import keep_text
from exgrpo.jobs.runs import lookup
from exgrpo.jobs.runs.checkpoints import save_checkpoint
from exgrpo.jobs.runs.directory import CommandError, RunDirectory, RunDirectoryError
from exgrpo.jobs.runs.journal import Journal
from exgrpo.jobs.runs.state import SingleInstance, read_state
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.judging import JudgedSpec, JudgeSpec
from exgrpo.jobs.specs.train import DataSpec, ModelSpec, SpecError, TrainSpec, load_preset
from exgrpo_core.config import ExGRPOConfig, RewardKind
from exgrpo_core.errors import InputError
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE, CODE_FOLDER_VARIABLE
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.evaluation.judging.chain_runs import oracle_spec, server_spec
from tests.jobs.evaluation.tiny_evaluations import save_tiny_model, tiny_evaluation

pytestmark = pytest.mark.slow

MATH = (BenchmarkChoice(name="math500"),)


@pytest.fixture
def root(tmp_path) -> Path:
    run = RunDirectory.open(tmp_path / "runs", queue_job(tmp_path / "runs", TrainSpec(name="mine")))
    save_checkpoint(run.checkpoints_path, 5, lambda checkpoint: save_tiny_model(checkpoint.policy) and None)
    return tmp_path / "runs"


def trained_id(root: Path) -> str:
    return lookup.find_run_id(root, "mine")


def queue_study(root: Path) -> str:
    study = load_study("main-table")
    return start(root, study, PendingRun(RunKey("main-table", Scale.CHAINS, "sft", 0), None))


KINDS = {
    "train": lambda root: queue_job(root, TrainSpec(tags=("a",))),
    "train from a checkpoint": lambda root: queue_job(
        root, TrainSpec(model=ModelSpec(source="mine@5"), data=DataSpec(source="word_problems"))
    ),
    "sft": lambda root: queue_job(root, load_preset("chains-sft")),
    "evaluation": lambda root: queue_job(root, tiny_evaluation("owner/model", MATH)),
    "evaluation of a checkpoint": lambda root: queue_job(
        root, tiny_evaluation("x", MATH).model_copy(update={"model": resolve_target(root, "mine@5")})
    ),
    "judge": lambda root: queue_job(root, JudgeSpec(judged=JudgedSpec(run_id=trained_id(root)), judge="oracle")),
    "branch": lambda root: branching.branch(root, trained_id(root), 5),
    "study": queue_study,
}


@pytest.mark.parametrize("kind", KINDS)
def test_disk_that_is_full_at_the_journal_leaves_no_folder_of_any_kind_of_job(root, monkeypatch, kind):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before, entries = set(root.iterdir()), Journal(root).entries()
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", full)
        with pytest.raises(CommandError, match="No space left on device") as refused:
            KINDS[kind](root)
    assert "\n" not in str(refused.value)
    assert (set(root.iterdir()), Journal(root).entries()) == (before, entries)
    run = RunDirectory.open(root, KINDS[kind](root))
    assert read_state(run).status is RunStatus.QUEUED
    assert run.path in set(root.iterdir()) - before


RULE, REWARD = "tests.exgrpo_core.methods.outside_rules:Even", "tests.jobs.training.outside_rewards:shortness"
ALGORITHM = ExGRPOConfig(question_selection=RULE)
CONTINUOUS = ExGRPOConfig(reward_kind=RewardKind.CONTINUOUS, start_pass_rate=None)
OF_ONES_OWN = {
    "method": lambda root: queue_job(root, TrainSpec(algorithm=ALGORITHM)),
    "sweep": lambda root: keep_text(root, "own", f"base: chains-exgrpo\nover:\n  {METHOD_FIELD}: [{RULE}]"),
    "branch": lambda root: branching.branch(root, lookup.find_run_id(root, "own"), 5),
    "resume": lambda root: run_actions.resume(root, lookup.find_run_id(root, "own")) or "resumed",
    "data.rewards": lambda root: queue_job(root, TrainSpec(data={"rewards": {REWARD: 1}}, algorithm=CONTINUOUS)),
    "reward_parts": lambda root: queue_job(root, tiny_evaluation("owner/model", MATH, reward_parts=(REWARD,))),
}
METHOD_FIELD = "algorithm.question_selection"


@pytest.mark.parametrize("name", OF_ONES_OWN)
@pytest.mark.parametrize("lack", [ALLOWED_CODE_VARIABLE, CODE_FOLDER_VARIABLE])
def test_code_that_the_running_workbench_cannot_load_is_refused_at_submission(root, monkeypatch, name, lack):
    folder, allowed = str(Path(__file__).parents[3]), "tests"
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in {"", folder}])
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, allowed)
    monkeypatch.setenv(CODE_FOLDER_VARIABLE, folder)
    run = RunDirectory.open(root, queue_job(root, TrainSpec(name="own", algorithm=ALGORITHM)))
    run_actions.stop(root, run.run_id)
    save_checkpoint(run.checkpoints_path, 5, lambda checkpoint: save_tiny_model(checkpoint.policy) and None)
    supervisor = SingleInstance(root)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv(lack, str(root))
        supervisor.beat(0)
    before = set(root.iterdir())
    with pytest.raises(InputError) as refused:
        OF_ONES_OWN[name](root)
    field = name if "." in name or "_" in name else METHOD_FIELD
    assert str(refused.value).startswith(f"{field}: the workbench that is running cannot load tests.")
    assert set(root.iterdir()) == before
    supervisor.beat(0)
    assert OF_ONES_OWN[name](root)
    supervisor.release()


def test_local_files_are_named_absolutely_since_workers_run_elsewhere(tmp_path, monkeypatch):
    prompt, answer = [{"role": "user", "content": "1 + 1?"}], {"ground_truth": "2"}
    row = {"data_source": "math", "prompt": prompt, "reward_model": answer}
    for name in ("questions.jsonl", "labelled.jsonl"):
        (tmp_path / name).write_text(json.dumps(row))
    for name in ("chains", "chains-warm"):  # folders that happen to be called like made questions change nothing
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    data = DataSpec(source="questions.jsonl", num_questions=1, num_held_out=0)
    small = ExGRPOConfig(batch_size=1, mini_batch_size=1, experience_ratio=0.0)
    of_others = TrainSpec(model=ModelSpec(source="hub/model"), data=data, algorithm=small)
    spec = run_actions.clone(tmp_path, queue_job(tmp_path, of_others))
    assert spec.data.source == str(tmp_path / "questions.jsonl")
    spec = run_actions.clone(tmp_path, queue_job(tmp_path, TrainSpec()))
    assert (spec.data.source, spec.model.source) == ("chains", "chains-warm")
    job_id = queue_job(tmp_path, server_spec("http://127.0.0.1:1/v1", judged={"file": "labelled.jsonl"}))
    assert RunDirectory.open(tmp_path, job_id).job_spec().judged.file == tmp_path / "labelled.jsonl"


def test_runs_root_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=str(tmp_path / "file")):
        queue_job(tmp_path / "file", TrainSpec())


def test_what_is_not_there_or_no_training_run_of_chains_is_refused_before_anything_is_queued(tmp_path):
    with pytest.raises(RunDirectoryError):
        queue_job(tmp_path, oracle_spec())
    choice = BenchmarkChoice(name="math500", source="gone.parquet")
    for spec in (
        server_spec("http://127.0.0.1:1/v1", judged={"file": str(tmp_path / "none.jsonl")}),
        EvalSpec(model=EvalModelSpec(source="owner/model"), benchmarks=(choice,)),
    ):
        with pytest.raises(SpecError):
            queue_job(tmp_path, spec)
    RunDirectory.create(tmp_path, oracle_spec(), run_id="trained")
    with pytest.raises(SpecError):
        queue_job(tmp_path, oracle_spec())
    assert len(list(tmp_path.glob("*/run.json"))) == 1


def test_the_oracle_judges_chains_only(tmp_path):
    spec = TrainSpec(
        name="mathematics", model=ModelSpec(source="mine"), data={"source": "some.parquet", "template": "paper"}
    )
    RunDirectory.create(tmp_path, spec, run_id="trained")
    with pytest.raises(SpecError):
        queue_job(tmp_path, oracle_spec())
    assert queue_job(tmp_path, server_spec("http://127.0.0.1:1/v1"))
