"""The texts of single tokens, by the tokenizer that a run's newest checkpoint holds; loads no training engine."""

from collections.abc import Sequence
from pathlib import Path

from jobs.runs.checkpoints import list_checkpoints
from jobs.runs.directory import RunDirectory


def token_texts(run: RunDirectory, token_ids: Sequence[int]) -> list[str] | None:
    """Return the text that each token adds, or None where the run holds no tokenizer.

    The last token of a character has its text; together the texts are the decoded text.
    """
    path = _tokenizer_path(run)
    if path is None:
        return None
    from tokenizers import Tokenizer, decoders  # type: ignore[import-untyped]

    tokenizer = Tokenizer.from_file(str(path))
    stream = decoders.DecodeStream(skip_special_tokens=False)
    return [stream.step(tokenizer, int(token_id)) or "" for token_id in token_ids]


def _tokenizer_path(run: RunDirectory) -> Path | None:
    paths = (folder / "policy" / "tokenizer.json" for folder in reversed(list_checkpoints(run.checkpoints_path)))
    return next((path for path in paths if path.is_file()), None)
