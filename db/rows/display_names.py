"""Names that pages and the command line show alike, and texts of others that neither may obey."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

BATCH_PASS_RATE = "Batch Pass@1"
"""Share of the fresh rollouts of a training batch that are correct."""

LINEAGE_EVENTS = {
    "inserted": "stored in the buffer",
    "duplicate": "came up again, not stored twice",
    "moved": "question moved",
    "retired": "question retired",
    "reviewed": "retired question reviewed",
    "scored": "candidate, not chosen",
    "replayed": "replayed",
}
"""What can happen to a trajectory after its birth."""


def held_out_score(samples_per_question: int | None = None) -> str:
    """Return the name of the mean correctness on held-out questions; n where the number of samples is not one."""
    return f"Held-out Avg@{'n' if samples_per_question is None else samples_per_question}"


def distinct_names(runs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return for each (run id, name) the name to show, with as much of the id as tells runs of one name apart."""
    named = list(runs)
    counts = Counter(name for _, name in named)
    ends = Counter((name, id_end(run_id)) for run_id, name in named)
    shown = {}
    for run_id, name in named:
        end = id_end(run_id) if ends[name, id_end(run_id)] == 1 else run_id
        shown[run_id] = f"{name} ({end})" if counts[name] > 1 else name
    return shown


def id_end(run_id: str) -> str:
    """Return the random end of a run id, short enough to say and nearly always the only one of its kind."""
    return run_id.rpartition("-")[2]


def escape_control_characters(text: str) -> str:
    """Return text whose control characters (escape sequences, direction overrides) are visible instead of obeyed."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Cs"}:
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < ord(" ") else f"\\u{code:04x}"
