"""The formats that can be opened, and which of them a path holds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from exgrpo_core.errors import InputError
from exgrpo_core.recording.rows import RecordedStep
from jobs.rollout_formats import verl_dumps
from jobs.rollout_formats.source import RolloutSource, Sample


class UnknownRolloutsError(InputError):
    """A path that is missing, empty, or of no format that can be opened; one sentence says which."""


@dataclass(frozen=True, slots=True)
class RolloutFormat:
    """A format by the words that users know it by."""

    title: str
    recognises: Callable[[Sample], bool]
    read: Callable[[RolloutSource], Iterator[RecordedStep]]
    """Yields what the source has not handed out before; rows that cannot be read are given to `source.bad`."""


FORMATS = (RolloutFormat("verl's rollout or validation dumps", verl_dumps.recognises, verl_dumps.read),)
"""The first that recognises a path reads it."""


def find_format(path: Path) -> RolloutFormat:
    """Return the format of the rollouts at a path.

    Raises:
        UnknownRolloutsError: It is missing, cannot be read, has no files, or no format recognises it.
    """
    try:
        sample = Sample(path)
        if not sample.head:
            what = "the folder has no files with content" if path.is_dir() else "the file is empty"
            raise UnknownRolloutsError(f"{path}: {what}; name the folder or file that has the rollouts.")
        found = next((entry for entry in FORMATS if entry.recognises(sample)), None)
    except OSError as error:
        raise UnknownRolloutsError(f"{path}: cannot be read ({error.strerror or error}); name another path.") from None
    if found is None:
        titles = "; ".join(entry.title for entry in FORMATS)
        raise UnknownRolloutsError(
            f"{path}: holds no rollouts of a known format ({titles}); --format describes others."
        )
    return found
