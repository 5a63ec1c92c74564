"""Refusal of models that come with code, before a job is queued."""

import json
from pathlib import Path

from jobs.preflight.model_shapes import model_file
from jobs.specs.train import SpecError

CONFIG_FILES = ("config.json", "tokenizer_config.json", "processor_config.json", "preprocessor_config.json")
_KEY = "auto_map"


def refuse_remote_code(field: str, source: str, revision: str | None = None) -> None:
    """Refuse a model on this machine that comes with code; code of a model downloaded later is never run either.

    Raises:
        SpecError: One of its files names code.
    """
    for name in CONFIG_FILES:
        path = model_file(source, name, revision)
        if path is not None and _names_code(path):
            raise SpecError(
                f"{field}: {source} comes with code ({_KEY} in {name}), which is never run; choose a model whose "
                "architecture transformers knows."
            )


def _names_code(path: Path) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and _KEY in content
