"""What is known of an attempt that runs on a Ray cluster, beside the heartbeat that its worker writes there.

A worker on another machine cannot be looked up by its process id. What counts is that the cluster named it as running,
or that it wrote a heartbeat, a short while ago; `ray.json` in the attempt's folder holds the first.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from exgrpo_core.durable_files import write_whole
from jobs.runs.attempts import Heartbeat

CONTACT_FILE = "ray.json"
SILENCE_SECONDS = 30.0
"""A worker that neither its cluster nor itself has shown to be alive for this long counts as lost."""


@dataclass(frozen=True, slots=True)
class RayContact:
    """Where an attempt's job is, and how much is known of it."""

    attempt_path: str
    """The attempt's folder as the cluster sees it; in a copied folder it names another one."""
    address: str
    submission_id: str
    is_submitted: bool
    """Whether the job was, or may have been, handed to Ray."""
    is_over: bool
    """Whether the job has ended and nothing of it is left, or nothing more can be learned of it."""
    log_bytes: int
    """How much of the job's log is in the run's."""
    seen_at: float
    """When the cluster last named the job as waiting or running, in seconds since 1970."""


def write_contact(attempt_path: Path, contact: RayContact) -> None:
    """Replace what is known; readers see the old or the new, never a part."""
    write_whole(attempt_path / CONTACT_FILE, json.dumps(asdict(contact)), is_durable=False)


def read_contact(attempt_path: Path) -> RayContact | None:
    """Return what is known of this folder's job; None for attempts on this machine and for copied folders."""
    try:
        record = json.loads((attempt_path / CONTACT_FILE).read_text(encoding="utf-8"))
        contact = RayContact(**record)
        texts = (contact.attempt_path, contact.address, contact.submission_id)
        numbers = (float(contact.seen_at), int(contact.log_bytes))
    except (OSError, ValueError, TypeError):
        return None
    is_this_one = all(isinstance(text, str) for text in texts) and texts[0] == str(attempt_path.resolve())
    return contact if is_this_one and min(numbers) >= 0 else None


def was_heard_of(contact: RayContact, heartbeat: Heartbeat | None) -> bool:
    """Tell whether the worker of an attempt without an outcome has sent a heartbeat, or been seen, lately.

    A moment to come is one by another clock, and tells nothing.
    """
    beat_at = heartbeat.at.timestamp() if heartbeat else 0.0
    return any(abs(time.time() - moment) < SILENCE_SECONDS for moment in (contact.seen_at, beat_at))
