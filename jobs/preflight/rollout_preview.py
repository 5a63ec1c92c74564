"""Preview of rollouts before they are opened: what the chosen format makes of the first rows."""

from itertools import islice
from pathlib import Path

from exgrpo_core.recording.rows import RecordedTrajectory
from jobs.preflight.data_preview import MAX_ROWS, DataPreview, PromptPreview
from jobs.rollout_formats.formats import RolloutFormat, UnknownRolloutsError, find_only_format
from jobs.rollout_formats.source import RolloutSource


def preview_rollouts(path: Path, own_format: RolloutFormat | None = None, num_shown: int = 3) -> DataPreview:
    """Return the first trajectories as prompts with their responses; lengths are of prompts, in characters.

    Raises:
        UnknownRolloutsError: There is nothing at the path, its format is not known, or no row is a rollout.
    """
    reads, source = own_format or find_only_format(path), RolloutSource(path)
    rows = [row for step in islice(reads.read(source), MAX_ROWS) for row in step.trajectories][:MAX_ROWS]
    if not rows:
        why = f"; the first bad row is {source.bad.sentences[0]}" if source.bad.num else "."
        raise UnknownRolloutsError(f"{path}: {reads.title}: no row is a rollout{why}")
    shown = tuple(_preview(row) for row in rows[:num_shown])
    lengths = tuple(len(_text(row, is_generated=False)) for row in rows)
    skipped = f" Skipped: {source.bad.num:,} rows, first {source.bad.sentences[0]}" if source.bad.num else ""
    return DataPreview(shown, lengths, is_in_tokens=False, notice=f"Read as {reads.title}.{skipped}")


def _preview(row: RecordedTrajectory) -> PromptPreview:
    text = "\n\n".join(f"{message.role}: {message.text}" for message in row.messages)
    return PromptPreview(text, row.answer or "", "unknown" if row.reward is None else f"reward {row.reward:g}")


def _text(row: RecordedTrajectory, *, is_generated: bool) -> str:
    return "\n\n".join(message.text for message in row.messages if message.is_generated == is_generated)
