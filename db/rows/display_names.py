"""Names that pages and the command line share, and safe display of text from outside."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import PurePosixPath

from exgrpo_core.recording.run_folder import id_end

BATCH_PASS_RATE = "Batch Pass@1"
"""Share of the fresh rollouts of a training batch that are correct, those of replayed questions included."""
FRESH_PASS_RATE = "Fresh Pass@1"
"""The same, only for questions without a replay, which all methods have."""

LINEAGE_EVENTS = {
    "inserted": "stored in the buffer",
    "duplicate": "same response again, not stored",
    "moved": "question moved",
    "retired": "question retired",
    "evicted": "left the buffer (limit)",
    "emptied": "question left the buffer (limit)",
    "reviewed": "retired question reviewed",
    "scored": "candidate, not chosen",
    "replayed": "replayed",
}
"""The events of a trajectory after its generation."""
SNIPPET_CHARACTERS = 200


def held_out_score(samples_per_question: int | None = None) -> str:
    """Return the name of the mean correctness on held-out questions; with n where it differs between runs."""
    return f"Held-out Avg@{'n' if samples_per_question is None else samples_per_question}"


def distinct_names(runs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a distinct name by run id for each (run id, name), with a part of the id if names are equal."""
    named = list(runs)
    counts = Counter(name for _, name in named)
    ends = Counter((name, id_end(run_id)) for run_id, name in named)
    distinct = {}
    for run_id, name in named:
        end = id_end(run_id) if ends[name, id_end(run_id)] == 1 else run_id
        distinct[run_id] = f"{name} ({end})" if counts[name] > 1 else name
    return distinct


def model_name(source: str) -> str:
    """Return the shown name of a model: of a folder the last part of its path, of any other the source itself."""
    path = PurePosixPath(source)
    return path.name if path.is_absolute() else source


def escape_control_characters(text: str) -> str:
    """Return text whose control characters (escape sequences, direction overrides) are visible and have no effect."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Cs"}:
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < ord(" ") else f"\\u{code:04x}"


def as_utc(at: datetime) -> datetime:
    """Return the time with its zone; stored times without one are UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def utc_time(at: datetime) -> str:
    """Return a time to the second, in UTC with its zone."""
    return f"{as_utc(at):%Y-%m-%d %H:%M:%S} UTC"


def shorten(text: str) -> str:
    """Return the text on one line, with an ellipsis where more than `SNIPPET_CHARACTERS` are cut."""
    line = " ".join(text.split())
    return line if len(line) <= SNIPPET_CHARACTERS else f"{line[:SNIPPET_CHARACTERS]}…"
