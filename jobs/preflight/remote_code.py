"""Refusal of models that come with code, before a job is queued."""

from pathlib import Path

from exgrpo_core.bounded_json import UnreadableFileError, read_json
from jobs.preflight.model_shapes import model_file
from jobs.specs.model_code import CONFIG_FILES, named_code
from jobs.specs.train import SpecError


def refuse_remote_code(field: str, source: str, revision: str | None = None) -> None:
    """Refuse a model on this machine that comes with code; code of a model downloaded later is never run either.

    Raises:
        SpecError: One of its files names code.
    """
    for name in CONFIG_FILES:
        path = model_file(source, name, revision)
        field_of_code = None if path is None else _code_of(path)
        if field_of_code is not None:
            raise SpecError(
                f"{field}: {source} comes with code ({field_of_code} in {name}), which is never run; choose a model "
                "whose architecture transformers knows."
            )


def _code_of(path: Path) -> str | None:
    try:
        return named_code(read_json(path))
    except (OSError, UnreadableFileError):
        return None  # a configuration that cannot be read is refused with the model's sizes
