import shutil
from pathlib import Path

import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.answering import find_model
from exgrpo.jobs.actions.archive import export_run, import_run
from exgrpo.jobs.actions.branching import branch
from exgrpo.jobs.actions.evaluations import plan_evaluation
from exgrpo.jobs.actions.model_export import export_model
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.execution.supervisor.loop import find_hold
from exgrpo.jobs.execution.worker.__main__ import main
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import waited_for
from exgrpo.jobs.runs.lookup import find_run_id
from exgrpo.jobs.runs.state import read_state
from exgrpo.jobs.specs.judging import JudgedSpec, JudgeSpec
from exgrpo.jobs.specs.train import load_preset, parse_spec
from exgrpo.jobs.training.engines.embedded.model import load_policy, resolve_device
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.training.conftest import SMALL, model  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


def work(root: Path, run_id: str, *, stops: bool = False) -> str:
    """Run the newest attempt of a job in this process; with `stops` up to its first step."""
    run = RunDirectory.open(root, run_id)
    if stops:
        run.request_stop()
    assert main([str(run.path), str(run.claim_attempt(run.requested_attempt()))]) == 0
    run.clear_stop()
    assert read_state(run).status is (RunStatus.STOPPED if stops else RunStatus.FINISHED)
    return run_id


def training(name: str, source: str, **changes: object):
    content = {
        "name": name, "model": {"source": source, "device": "cpu"}, "data": {"num_questions": 8, "num_held_out": 2},
        "algorithm": SMALL, "num_steps": 3, "checkpoint_interval": 1,
        "validation": {"interval": 2, "samples_per_question": 1, "num_training_questions": 0},
    }  # fmt: skip
    return parse_spec(content | changes, "test")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, model) -> tuple[Path, dict[str, str]]:  # noqa: F811 - the fixture
    """A runs root with a job of each kind, stopped before its first step where it has steps; since moved."""
    root = tmp_path_factory.mktemp("first") / "runs"
    ids: dict[str, str] = {}

    def add(name: str, spec, *, stops: bool = True) -> None:
        ids[name] = work(root, queue_job(root, spec), stops=stops)

    def with_adapters(name: str, source: str, **changes: object):
        lora = {"source": source, "device": "cpu", "lora": {"rank": 2}}
        return training(name, "", **{"model": lora} | changes)

    add("train", training("train", str(model)))
    demonstrations = load_preset("chains-sft").sft
    on_policy = SMALL | {"experience_ratio": 0.0, "max_response_tokens": 60}
    add("sft", training("sft", "train@last", sft=demonstrations.model_dump(), algorithm=on_policy))
    add("adapters", with_adapters("adapters", "train@last"))
    add("adapters again", with_adapters("adapters again", "adapters@last"))
    (root / "workbench" / "benchmarks").mkdir()
    (root / "workbench" / "benchmarks" / "mine.jsonl").write_text('{"problem": "1 + 1", "answer": "2"}\n')
    scoring = {"benchmarks": [{"name": "mine"}], "max_response_tokens": 4, "num_graders": 1}
    add("evaluation", plan_evaluation(root, "adapters again@last", scoring, "test"), stops=False)
    add("finished", training("finished", str(model), num_steps=1), stops=False)
    judged = JudgedSpec(run_id=ids["finished"], only_correct=False)
    add("judge", JudgeSpec(judged=judged, judge="oracle"), stops=False)
    add("awaited", with_adapters("awaited", f"{ids['finished']}@last", waits_for=ids["finished"]))
    moved = root.parent / "moved"
    root.rename(moved)
    return moved, ids


def test_no_file_of_a_run_but_its_log_names_the_runs_root(runs):
    root, ids = runs
    former = str(root.parent / "runs").encode()
    files = [path for run_id in ids.values() for path in (root / run_id).rglob("*") if path.is_file()]
    assert [path for path in files if path.name != "log.txt" and former in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("kind", "is_alone"),
    [("train", False), ("evaluation", False), ("judge", False)]
    + [(kind, True) for kind in ("sft", "adapters again", "evaluation", "awaited")],
)
def test_a_run_of_any_kind_does_everything_in_another_root(runs, tmp_path, kind, is_alone):
    root, run_id = tmp_path / "runs", runs[1][kind]
    if is_alone:
        import_run(export_run(RunDirectory.open(runs[0], run_id), tmp_path), root)
    else:
        shutil.copytree(runs[0], root)
    run = RunDirectory.open(root, run_id)
    assert find_hold(run, waited_for(run)) is None
    if kind in {"evaluation", "judge"}:
        return
    run_actions.resume(root, run_id)
    work(root, run_id)
    content = {"benchmarks": [{"name": "gsm8k", "source": str(tmp_path / "mine.jsonl")}], "max_response_tokens": 4}
    (tmp_path / "mine.jsonl").write_text('{"question": "1 + 1", "answer": "#### 2"}\n')
    work(root, queue_job(root, plan_evaluation(root, f"{run_id}@best", content, "test")))
    load_policy(str(export_model(root, f"{run_id}@last", tmp_path / "model")), resolve_device("cpu"))
    for step in ("start", "last"):
        load_policy(find_model(root, f"{run_id}@{step}").source, resolve_device("cpu"))
    work(root, branch(root, run_id, 2))
    copy = queue_job(root, run_actions.clone(root, run_id), parent_run_id=run_id)
    work(root, copy)
    assert find_run_id(root, copy) == copy
