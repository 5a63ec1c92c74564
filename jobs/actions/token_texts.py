"""The texts of single tokens, by the tokenizer of a run's newest checkpoint or model; loads no training engine."""

from collections.abc import Sequence
from pathlib import Path

from exgrpo_core.bounded_json import UnreadableFileError
from jobs.actions.preflight.chat_template import read_tokenizer
from jobs.runs.checkpoints import list_checkpoints
from jobs.runs.directory import RunDirectory
from jobs.specs.train import SpecError
from jobs.training.pretrained.model_shapes import TOKENIZER_FILE, model_file
from jobs.training.pretrained.sources import ModelSourceError


def token_texts(run: RunDirectory, token_ids: Sequence[int]) -> list[str] | None:
    """Return the text that each token adds, or None where the run's tokenizer is not on this machine or damaged.

    The last token of a character has its text; together the texts are the decoded text.
    """
    path = _tokenizer_path(run)
    if path is None:
        return None
    from tokenizers import decoders  # type: ignore[import-untyped]

    try:
        tokenizer = read_tokenizer(path)
    except UnreadableFileError:
        return None
    stream = decoders.DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, int(token_id)) or "" for token_id in token_ids]


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
