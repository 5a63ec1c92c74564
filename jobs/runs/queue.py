"""Which runs wait for a worker, by the journal, and which of these for another job."""

from collections.abc import Iterable

from jobs.runs.directory import RunDirectory
from jobs.runs.journal import JournalEntry, JournalKind
from jobs.specs.evaluation import EvalSpec
from jobs.specs.mistakes import SpecError
from jobs.specs.train import TrainSpec

_REQUESTS = frozenset({JournalKind.SUBMITTED, JournalKind.RESUME_ASKED})


def asked_attempts(entries: Iterable[JournalEntry]) -> dict[str, int]:
    """Return the newest requested attempt of each run, in the order of requests."""
    requested: dict[str, int] = {}
    for entry in entries:
        add_request(requested, entry)
    return requested


def add_request(requested: dict[str, int], entry: JournalEntry) -> bool:
    """Add the attempt that an entry requests, as the last; return whether it is at least as new as the run's others."""
    attempt = entry.data.get("attempt")
    if entry.kind not in _REQUESTS or not isinstance(attempt, int) or attempt < requested.get(entry.run_id, 0):
        return False
    requested.pop(entry.run_id, None)
    requested[entry.run_id] = attempt
    return True


def predecessor_of(run: RunDirectory) -> str | None:
    """Return the id of the job that this one waits for, None for none or where its specification cannot be read."""
    try:
        spec = run.job_spec()
    except SpecError:
        return None  # the worker itself says what is wrong
    return spec.waits_for if isinstance(spec, TrainSpec | EvalSpec) else None
