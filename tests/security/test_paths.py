"""Nothing outside the runs root is read or written, however a run, a draft or a file is named."""

import contextlib
import json
import os

import pytest
from streamlit.testing.v1 import AppTest

from exgrpo.app import settings
from exgrpo.app.queries.runs import has_folder, log_file, read_log
from exgrpo.db.rows.chains_of_thought import SavedCase
from exgrpo.db.rows.trajectories import MarkedTrajectory
from exgrpo.jobs.actions import annotations, branching, drafts, run_actions
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.actions.token_texts import token_data
from exgrpo.jobs.evaluation.analysis.score_curves import evaluation_answers
from exgrpo.jobs.evaluation.recorded_answers import encode_line, find_answers
from exgrpo.jobs.runs import lookup
from exgrpo.jobs.runs.checkpoints import find_fault
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError, inside, list_run_directories
from exgrpo.jobs.runs.lookup import find_checkpoint
from exgrpo.jobs.specs.judging import JudgedSpec, JudgeSpec
from exgrpo.jobs.specs.train import SpecError, parse_spec
from exgrpo_core.bounded_json import seal
from exgrpo_core.experience_management.storage.append_file import BufferCorruptionError
from exgrpo_core.experience_management.storage.segments import SegmentExtent
from exgrpo_core.faults import FaultKind
from tests.app.conftest import MAIN_SCRIPT
from tests.security import outside

pytestmark = pytest.mark.slow

REFUSED = (lookup.CommandError, RunDirectoryError, SpecError)
BY_ID = {
    "open": RunDirectory.open, "stop": run_actions.stop, "resume": run_actions.resume, "clone": run_actions.clone,
    "branch": lambda root, name: branching.branch(root, name, 1),
    "tag": lambda root, name: run_actions.tag(root, name, "x"),
    "note": lambda root, name: run_actions.note(root, name, "x"),
    "archive": lambda root, name: run_actions.archive(root, name, False),
    "mark case": lambda root, name: annotations.mark_case(root, "set", SavedCase(name, 1, 1, 2)),
    "mark": lambda root, name: annotations.mark_trajectory(root, MarkedTrajectory(name, 1, 1, "odd", "")),
    "verdict": lambda root, name: annotations.set_verdict(root, name, 1, 1, True),
    "judge": lambda root, name: queue_job(root, JudgeSpec(judge="oracle", judged=JudgedSpec(run_id=name))),
    "save draft": lambda root, name: drafts.save_draft(root, f"../{name}", {"x": 1}),
    "load draft": lambda root, name: drafts.load_draft(root, f"../{name}"),
    "delete draft": lambda root, name: drafts.delete_draft(root, f"../{name}"),
}  # fmt: skip


@pytest.fixture
def fenced(tmp_path):
    made = outside.make(tmp_path)
    settings.configure(settings.AppSettings(made.root))
    return made


@pytest.mark.parametrize("name", BY_ID)
def test_a_run_or_draft_beyond_the_root_is_refused_by_every_command(fenced, name):
    before = fenced.state()
    for form in fenced.forms():
        with pytest.raises(REFUSED) as refused:
            BY_ID[name](fenced.root, form)
        assert outside.CANARY not in str(refused.value)
    assert fenced.state() == before


def test_the_address_of_a_page_and_a_specification_reach_no_run_beyond_the_root(fenced):
    before = fenced.state()
    for form in fenced.forms():
        assert not has_folder(form)
        assert log_file(form) is None
        assert read_log(form, "", 9).lines == []
        assert token_data(fenced.root, form, "run.json", 1, replayed_in=None) is None
        assert evaluation_answers(fenced.root, form, "math500", "q") is None
        with contextlib.suppress(lookup.CommandError, ValueError):
            assert find_checkpoint(fenced.root, f"{form}@1") is None
        if "/" in form or "\\" in form or "\0" in form:
            with pytest.raises(SpecError, match="name"):
                parse_spec({"name": form}, "test")
    page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=30)
    page.query_params["run"] = outside.LINKED
    page.switch_page("app_pages/run.py").run()
    assert not page.exception
    assert outside.CANARY not in str(page)
    assert fenced.state() == before


def test_a_linked_run_is_not_listed(fenced):
    assert [run.run_id for run in list_run_directories(fenced.root)] == [outside.INSIDE]


def test_files_that_recorded_content_names_lie_inside_the_run(fenced):
    run = RunDirectory.open(fenced.root, outside.INSIDE)
    beyond = fenced.beyond / outside.OUTSIDE / "run.json"
    (run.path / "link").symlink_to(beyond)
    for form in [*(f"../{form}" for form in fenced.forms()), "link", str(beyond)]:
        with pytest.raises(RunDirectoryError):
            inside(run.path, form)


def test_a_manifest_that_names_a_file_elsewhere_makes_no_whole_checkpoint(fenced):
    checkpoint = fenced.root / outside.INSIDE / "checkpoints" / "step-00000001"
    target = fenced.beyond / outside.OUTSIDE / "run.json"
    name = os.path.relpath(target, checkpoint)
    manifest = json.dumps({"step": 1, "files": {name: [target.stat().st_size, 0]}}).encode()
    (checkpoint / "manifest.json").write_bytes(seal(manifest))
    assert find_fault(checkpoint).kind is FaultKind.OUTSIDE


def test_a_snapshot_that_names_a_segment_elsewhere_is_damaged():
    for name in ("../segment-000001", "/segment-000001", "segment-000001/../x", "x", "segment-000001\n"):
        with pytest.raises(BufferCorruptionError):
            SegmentExtent(name, 1, 1, 1)


def test_answers_are_looked_for_in_the_evaluation_alone(fenced):
    folder = fenced.beyond / "evaluation"
    folder.mkdir()
    (folder / "x-0001.jsonl").write_bytes(
        encode_line({"question_id": "q", "question": "", "gold": "", "seed": 0, "samples": [], "outcomes": []})
    )
    run = fenced.root / outside.INSIDE
    (run / "evaluation").mkdir()
    assert find_answers(fenced.beyond, "x", "q") is not None
    assert find_answers(run, "../../../beyond/evaluation/x", "q") is None
