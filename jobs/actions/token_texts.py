"""The recorded values of single tokens, and their texts by the tokenizer of a run's newest checkpoint or model.

Loads no training engine.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from exgrpo.jobs.actions.preflight.looks import read_tokenizer
from exgrpo.jobs.runs.checkpoints import list_checkpoints
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError, inside
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.train import SpecError
from exgrpo.jobs.training.pretrained.model_shapes import TOKENIZER_FILE, model_file
from exgrpo.jobs.training.pretrained.sources import ModelSourceError
from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.recording.lines import read_tokens


def token_texts(run: RunDirectory, token_ids: Sequence[int]) -> list[str] | None:
    """Return the text that each token adds; None where the package tokenizers is not installed, as for `exgrpo view`.

    Neither is it known where the run's tokenizer is not on this machine, or is damaged.

    The last token of a character has its text; together the texts are the decoded text.
    """
    path = _tokenizer_path(run)
    if path is None or find_spec("tokenizers") is None:
        return None
    from tokenizers import decoders  # type: ignore[import-untyped]

    try:
        tokenizer = read_tokenizer(path)
    except UnreadableFileError:
        return None
    stream = decoders.DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, int(token_id)) or "" for token_id in token_ids]


@needs(Role.VIEWER)
def token_data(
    runs_root: Path, run_id: str, file: str, trajectory_id: int, *, replayed_in: int | None, has_texts: bool = True
) -> dict[str, list[Any] | None] | None:
    """Return the per-token values recorded of a trajectory, as it was generated, or replayed in a step.

    `texts`, if asked for, holds the text of each token.

    None if the file or the trajectory does not exist; a value is None if it was not kept.
    """
    try:
        run = RunDirectory.open(runs_root, run_id)
        name, _, place = file.partition("@")
        path = inside(run.path, name)
        data = read_tokens(path, place, trajectory_id, replayed_in)
    except (RunDirectoryError, OSError, KeyError, ValueError):
        return None
    ids = data["token_ids"]
    texts = None if ids is None or not has_texts else token_texts(run, [int(number) for number in ids])
    return {**data, "texts": texts}


def _tokenizer_path(run: RunDirectory) -> Path | None:
    paths = (folder / "policy" / TOKENIZER_FILE for folder in reversed(list_checkpoints(run.checkpoints_path)))
    of_checkpoint = next((path for path in paths if path.is_file()), None)
    return of_checkpoint or next(run.model_path.glob(f"*/*/{TOKENIZER_FILE}"), None) or _source_tokenizer(run)


def _source_tokenizer(run: RunDirectory) -> Path | None:
    """Return the tokenizer of the model that a run starts from, which it has before its first checkpoint too."""
    try:
        model = run.spec().model
        return model_file(model.source, TOKENIZER_FILE, model.revision)
    except (SpecError, ModelSourceError):
        return None
