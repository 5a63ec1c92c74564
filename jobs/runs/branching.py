"""Sharing a checkpoint between two runs by hard links, which is safe since written files never change."""

import shutil

from exgrpo_core.durable_files import link_or_copy
from exgrpo_core.experience_management.storage.snapshot import read_snapshot
from exgrpo_core.state import BUFFER_FILE
from jobs.runs.checkpoints import Checkpoint, checkpoint_path
from jobs.runs.directory import RunDirectory, inside

_SEGMENT_ENDINGS = (".trajectories", ".rows")


def link_checkpoint(parent: RunDirectory, run: RunDirectory, step: int) -> None:
    """Link the parent's checkpoint at `step`, and the sealed segments of the buffer that it names, into `run`.

    Raises:
        OSError: A file is missing or cannot be written.
        BufferCorruptionError: The checkpoint's buffer snapshot is damaged.
        RunDirectoryError: It names a segment outside the buffer's folder.
    """
    checkpoint = Checkpoint(step, checkpoint_path(parent.checkpoints_path, step))
    snapshot = checkpoint.experience / BUFFER_FILE
    if snapshot.exists():
        header, _ = read_snapshot(snapshot)
        for segment in header["segments"]:
            for ending in _SEGMENT_ENDINGS:
                name = f"{segment['name']}{ending}"
                link_or_copy(str(inside(parent.buffer_path, name)), str(run.buffer_path / name))
    shutil.copytree(checkpoint.path, checkpoint_path(run.checkpoints_path, step), copy_function=link_or_copy)
