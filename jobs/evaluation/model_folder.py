"""The model that an evaluation scores: a folder or hub name, or a checkpoint's model kept next to the answers."""

import json
import logging
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from exgrpo.jobs.machine.engine_environments import EngineEnvironmentError, engine_python
from exgrpo.jobs.runs.checkpoints import ADAPTER_CONFIG, BASE_FIELD, TOKENIZER_FILES
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import RunDirectory, inside
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo_core.durable_files import link_or_copy

logger = logging.getLogger(__name__)

_BASE_FOLDER = "base"
SHARD_PATTERN = "model_world_size_*_rank_*.pt"
_NOT_THE_MODEL = frozenset({"optimizer.safetensors", "sampler.safetensors", "engine.json"})
_MERGER = "exgrpo.jobs.training.engines.verl_ray.shard_merger"
_LOG_CHARS = 300


def keep_model(policy: Path, run: RunDirectory) -> None:
    """Give an evaluation's folder the model of a checkpoint, by hard links, so that it outlives the checkpoint.

    Raises:
        FileNotFoundError: The checkpoint holds neither a Hugging Face model nor verl's shards.
        OSError: A file cannot be linked or copied.
    """
    shards = find_shards(policy)
    if shards is not None:
        link_model(shards, run.shards_path)
    elif (policy / "config.json").is_file():
        link_model(policy, run.model_path)
    else:
        raise FileNotFoundError(f"{policy}: holds no model: neither config.json nor {SHARD_PATTERN}.")


def link_model(policy: Path, target: Path) -> None:
    """Make `target` with the model in a checkpoint's folder, by hard links where the file system has them.

    The folder takes its name once it is whole, so that what a kill leaves is not taken for a model.

    Raises:
        OSError: A file cannot be linked or copied.
    """
    unfinished = target.with_name(f".{target.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    copy_model(policy, unfinished, link_or_copy)
    unfinished.rename(target)


def copy_model(policy: Path, folder: Path, copy_file: Callable[[str, str], str]) -> None:
    """Make `folder` with the model and tokenizer in a checkpoint's folder, without what training alone needs.

    Adapters bring along the model that they belong to, where their run keeps it.

    Raises:
        OSError: A file cannot be copied.
        RunDirectoryError: The adapters of an imported run name a model outside of the run's folder.
    """

    def left_out(_folder: str, names: list[str]) -> set[str]:
        # Optimizer states are saved in files like the weights'.
        return {name for name in names if name in _NOT_THE_MODEL or name.startswith(("optim_", "extra_state_"))}

    shutil.copytree(policy, folder, copy_function=copy_file, ignore=left_out)
    adapters = folder / ADAPTER_CONFIG
    content = json.loads(adapters.read_text(encoding="utf-8")) if adapters.is_file() else {}
    base = content.get(BASE_FIELD, "")
    if base.startswith("../"):
        run = policy.parents[2]  # RUN/checkpoints/STEP/policy
        copy_model(inside(run, os.path.relpath(policy / base, run)), folder / _BASE_FOLDER, copy_file)
        adapters.unlink()  # it may be the checkpoint's file by another name
        adapters.write_text(json.dumps(content | {BASE_FIELD: f"./{_BASE_FOLDER}"}), encoding="utf-8")


def find_shards(policy: Path) -> Path | None:
    """Return the folder of verl's sharded weights in a checkpoint, None if it is no sharded one."""
    shard = next(iter(sorted(policy.rglob(SHARD_PATTERN))), None)
    return None if shard is None else shard.parent


def model_source(spec: EvalSpec, run: RunDirectory) -> str:
    """Return what to load: the run's own copy of a checkpoint's model, merged if need be, else the named source.

    Raises:
        TrainingError: Shards cannot be merged.
    """
    merged, shards = run.model_path, run.shards_path
    if shards.is_dir() and not merged.is_dir():
        merge_shards(shards, merged)
    return str(merged) if merged.is_dir() else spec.model.source


def merge_shards(shards: Path, target: Path) -> None:
    """Write verl's sharded weights as a Hugging Face model in bfloat16, with verl's own merger in its own environment.

    Adapters are merged into the weights.

    Raises:
        TrainingError: There is no such environment, or the merger fails; the message holds the end of its output.
    """
    unfinished = target.with_name(f".{target.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        python = engine_python("verl")
    except EngineEnvironmentError as error:
        raise TrainingError(str(error)) from error
    command = [python, "-P", "-m", _MERGER, "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(shards), "--target_dir", str(unfinished)]
    logger.info("Merging verl's shards in %s.", shards)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (unfinished / "config.json").is_file():
        words = " ".join((done.stderr or done.stdout).split())[-_LOG_CHARS:]
        raise TrainingError(f"{shards}: verl's merger failed with exit code {done.returncode} ({words}).")
    for name in TOKENIZER_FILES:
        # The merger writes the tokenizer as it loaded it, which for plain ones is not what the checkpoint holds.
        if (shards / "huggingface" / name).is_file():
            shutil.copy2(shards / "huggingface" / name, unfinished / name)
    _drop_tokens_without_embedding(unfinished)
    unfinished.rename(target)


def _drop_tokens_without_embedding(folder: Path) -> None:
    """Take out of a merged model's tokenizer what verl added beyond the model's vocabulary."""
    path, config_path = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not path.is_file() or not config_path.is_file():
        return
    num_embeddings = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("vocab_size", math.inf)
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    kept = [token for token in tokenizer["added_tokens"] if token["id"] < num_embeddings]
    if len(kept) == len(tokenizer["added_tokens"]):
        return
    dropped = {token["content"] for token in tokenizer["added_tokens"] if token not in kept}
    settings = json.loads(config_path.read_text(encoding="utf-8"))
    # Under its own class, which names a model type, loading would add them again.
    settings = {name: value for name, value in settings.items() if not (isinstance(value, str) and value in dropped)}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(tokenizer | {"added_tokens": kept}), encoding="utf-8")
    config_path.write_text(json.dumps(settings), encoding="utf-8")
