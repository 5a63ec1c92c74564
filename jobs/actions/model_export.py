"""A checkpoint's model as a folder that other programs load."""

import shutil
import tempfile
from pathlib import Path

from exgrpo.jobs.actions.archive import reason_of
from exgrpo.jobs.evaluation.model_folder import copy_model, find_shards, merge_shards
from exgrpo.jobs.runs.checkpoints import ADAPTER_CONFIG
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.lookup import find_checkpoint


def export_model(runs_root: Path, target: str, folder: Path) -> Path:
    """Write weights, tokenizer and generation settings of the checkpoint `RUN@STEP` as the new folder `folder`.

    It is written under a hidden name and renamed, so that it is whole once it exists. It shares no file with the run.

    Raises:
        CommandError: There is no such checkpoint, it is damaged, the folder exists, or it cannot be written.
        TrainingError: verl's shards cannot be merged.
        EngineError: The model that the checkpoint's adapters belong to cannot be loaded.
    """
    checkpoint = find_checkpoint(runs_root, target)
    if checkpoint is None:
        raise CommandError(f"{target}: expected the checkpoint of a run as RUN@STEP, or RUN@last.")
    if folder.exists():
        raise CommandError(f"{folder}: exists already; name a new folder.")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging:
            unfinished = Path(staging, folder.name)
            _write_model(checkpoint.policy, unfinished)
            unfinished.rename(folder)
    except (OSError, shutil.Error) as error:
        raise CommandError(f"{folder}: cannot be written ({reason_of(error)}).") from None
    return folder


def _write_model(policy: Path, folder: Path) -> None:
    shards = find_shards(policy)
    if shards is not None:
        merge_shards(shards, folder)
    elif (policy / ADAPTER_CONFIG).is_file():
        from exgrpo.jobs.training.engines.embedded.model import (  # loads torch, which nothing else here does
            load_policy,
            resolve_device,
        )
        from exgrpo.jobs.training.engines.embedded.state_files import save_model

        merged = load_policy(str(policy), resolve_device("cpu"))
        save_model(folder, merged.model)
        merged.tokenizer.save_pretrained(folder)
    else:
        copy_model(policy, folder, shutil.copyfile)
