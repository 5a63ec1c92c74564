"""State of an attempt on a Ray cluster: `ray.json` in its folder, beside the heartbeat of its worker.

A worker on another machine cannot be found by its process id. It counts as alive if the cluster reported it as running,
or it wrote a heartbeat, a short time ago; `ray.json` has the time of the former.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from exgrpo_core.bounded_json import read_json
from exgrpo_core.durable_files import write_whole
from jobs.runs.attempts import Heartbeat

CONTACT_FILE = "ray.json"
CONTACT_TIMEOUT_SECONDS = 30.0
"""A worker without a report of its cluster or a heartbeat for this long counts as lost."""


@dataclass(frozen=True, slots=True)
class RayContact:
    """Where an attempt's job is, and its last known state."""

    attempt_path: str
    """The attempt's folder as the cluster sees it; in a copied folder it names another one."""
    address: str
    submission_id: str
    is_submitted: bool
    """Whether the job was, or may have been, handed to Ray."""
    is_over: bool
    """Whether the job has ended with all its processes, or its state can no longer be read."""
    log_bytes: int
    """Bytes of the job's log that were copied to the run's log."""
    seen_at: float
    """When the cluster last reported the job as pending or running, in seconds since 1970."""


def write_contact(attempt_path: Path, contact: RayContact) -> None:
    """Replace the file; readers see the old or the new content, never a part."""
    write_whole(attempt_path / CONTACT_FILE, json.dumps(asdict(contact)), is_durable=False)


def read_contact(attempt_path: Path) -> RayContact | None:
    """Return the contact of this folder's job; None for attempts on this machine and for copied folders."""
    try:
        record = read_json(attempt_path / CONTACT_FILE)
        contact = RayContact(**record)
        texts = (contact.attempt_path, contact.address, contact.submission_id)
        numbers = (float(contact.seen_at), int(contact.log_bytes))
    except (OSError, ValueError, TypeError, OverflowError):
        return None
    is_this_one = all(isinstance(text, str) for text in texts) and texts[0] == str(attempt_path.resolve())
    return contact if is_this_one and min(numbers) >= 0 else None


def has_recent_contact(contact: RayContact, heartbeat: Heartbeat | None) -> bool:
    """Whether a worker without an outcome wrote a heartbeat, or its cluster reported it, within the timeout.

    A time in the future is from another clock, and counts as too old.
    """
    beat_at = heartbeat.at.timestamp() if heartbeat else 0.0
    return any(abs(time.time() - at) < CONTACT_TIMEOUT_SECONDS for at in (contact.seen_at, beat_at))
