"""What the run keeps of verl's checkpoints, where a small program replaces verl's trainer."""

import errno
import subprocess
import sys

import pytest

from exgrpo.jobs.runs.checkpoints import find_fault, list_checkpoints
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import RecordingSpec, parse_spec
from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import VERL_FOLDER
from exgrpo.jobs.training.engines.verl_ray.sft_overrides import CHECKPOINTS_FOLDER
from exgrpo.jobs.training.verl_sft import SftFollower
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests.faults.small_training import StepControl

pytestmark = pytest.mark.slow

SPEC = {"engine": "verl", "sft": {}, "algorithm": {"experience_ratio": 0.0}}
WRITE_THREE = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
for step in (2, 4, 6):
    (folder / f"global_step_{step}" / "huggingface").mkdir(parents=True)
    (folder / f"global_step_{step}" / "huggingface" / "config.json").write_text(str(step))
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))
(folder / "global_step_8").mkdir()
"""


@pytest.mark.parametrize(("num_kept", "expected"), [(3, [2, 4, 6]), (2, [4, 6])])
def test_checkpoints_that_come_between_two_looks_are_all_kept(tmp_path, monkeypatch, num_kept, expected):
    run = RunDirectory.create(tmp_path, parse_spec(SPEC | {"num_checkpoints_kept": num_kept}, "test"))
    folder = run.path / VERL_FOLDER / CHECKPOINTS_FOLDER
    monkeypatch.setattr(
        SftFollower, "_start", lambda _, words: subprocess.Popen([sys.executable, "-c", WRITE_THREE, *words])
    )
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    follower = SftFollower(run.spec(), run, recorder, StepControl(), str(tmp_path))
    assert follower.follow([str(folder)], 0) is RunStatus.FINISHED
    assert not folder.exists()
    recorder.close()
    kept = list_checkpoints(run.checkpoints_path)
    assert [path.name for path in reversed(kept)] == [f"step-{step:08d}" for step in expected]
    assert [find_fault(path) for path in kept] == [None] * num_kept
    assert (kept[0] / "policy" / "config.json").read_text() == "6"
    events = EventReader(run).read(max_steps=100).events
    assert [event["step"] for event in events if event["kind"] == "checkpoint"] == expected


def test_no_checkpoint_is_taken_after_a_step_that_cannot_be_recorded(tmp_path, monkeypatch):
    class FullDisk(FileRecorder):
        def settle(self):
            super().settle()
            raise OSError(errno.ENOSPC, "No space left on device")

    run = RunDirectory.create(tmp_path, parse_spec(SPEC, "test"))
    folder = run.path / VERL_FOLDER / CHECKPOINTS_FOLDER
    monkeypatch.setattr(
        SftFollower, "_start", lambda _, words: subprocess.Popen([sys.executable, "-c", WRITE_THREE, *words])
    )
    follower = SftFollower(
        run.spec(), run, FullDisk(run, run.claim_attempt(), RecordingSpec()), StepControl(), str(tmp_path)
    )
    with pytest.raises(OSError, match="No space left"):
        follower.follow([str(folder)], 0)
    assert list_checkpoints(run.checkpoints_path) == []
