"""The files of a reward model, on this machine and checked before verl loads them.

verl's reward loop loads a reward model with the right to run code of its own, whatever its settings say. So the files
are downloaded first, checked, and verl gets the folder: what it loads is what was checked.
"""

from pathlib import Path

from huggingface_hub import snapshot_download

from exgrpo_core.bounded_json import UnreadableFileError, read_json
from exgrpo_core.errors import EngineError
from jobs.specs.model_code import CONFIG_FILES, named_code
from jobs.specs.train import TrainSpec


def with_checked_reward_model(spec: TrainSpec) -> TrainSpec:
    """Return the specification with its reward model as a folder that holds no code; unchanged without one.

    Raises:
        EngineError: The model names code, or cannot be downloaded.
    """
    if spec.reward_model is None:
        return spec
    source = spec.reward_model.source
    folder = Path(source) if Path(source).is_dir() else _download(source)
    for name in CONFIG_FILES:
        field = _code_of(folder / name) if (folder / name).is_file() else None
        if field is not None:
            raise EngineError(
                f"reward_model.source: {source} comes with code ({field} in {name}), which is never run; choose a "
                "model whose architecture transformers knows."
            )
    checked = spec.reward_model.model_copy(update={"source": str(folder)})
    return spec.model_copy(update={"reward_model": checked})


def _download(source: str) -> Path:
    try:
        return Path(snapshot_download(source))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise EngineError(f"reward_model.source: {source} cannot be downloaded ({reason[:200]}).") from None


def _code_of(path: Path) -> str | None:
    """Return the field that names code; a file that cannot be read may have one, so it counts as if it had."""
    try:
        return named_code(read_json(path))
    except (OSError, UnreadableFileError):
        return "perhaps a field"
