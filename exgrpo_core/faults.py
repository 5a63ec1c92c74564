"""Damage of recorded files, as data from its reader to the page; `describe_fault` alone makes sentences of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    """What is wrong with a file, and what `position` and `details` say of it."""

    MISSING = "missing"
    CHANGED = "changed"
    """It differs from what was written."""
    UNREADABLE = "unreadable"
    """`details` says why."""
    OUTSIDE = "outside"
    """A file of the run names it, but it is outside of the run's folder."""
    DAMAGED_LINE = "damaged_line"
    """What was appended at once at the byte `position[0]`, or the line there."""
    MISSING_EVENTS = "missing_events"
    """The bytes `position[0]` to `position[1]`, which the attempt had recorded by its end."""
    LOST_EXPERIENCE = "lost_experience"
    """Trajectories of the replay buffer are damaged, as its sentence in `details` says."""
    NOT_RECORDED = "not_recorded"
    """`position[0]` lines, or rows of what was read, that its writer left out, up to the byte `position[1]`; `details`
    says why."""
    NO_TRAJECTORY = "no_trajectory"
    """`position[0]` annotations, the first one event `position[1]`, of trajectories not read by then; no `file`."""
    NOT_SHOWN = "not_shown"
    """No damage: the program or the database could not show the run; `details` says why. `file` is empty."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One damage; `file` is the path inside the run's folder, or inside the runs root of what belongs to no run."""

    kind: FaultKind
    file: str
    position: tuple[int, ...] = ()
    details: str = ""

    def as_record(self) -> dict[str, Any]:
        """Return what JSON holds, for `fault_of`."""
        return asdict(self) | {"position": list(self.position)}


def fault_of(record: Mapping[str, Any]) -> Fault:
    """Return the fault that `as_record` wrote."""
    return Fault(FaultKind(record["kind"]), record["file"], tuple(record["position"]), record["details"])


_SENTENCES = {
    FaultKind.MISSING: "is missing",
    FaultKind.CHANGED: "differs from what was written (checksum)",
    FaultKind.UNREADABLE: "cannot be read: {details}",
    FaultKind.OUTSIDE: "is outside of the run's folder; use another copy of the run",
    FaultKind.DAMAGED_LINE: "what was written at byte {0} is damaged and was skipped",
    FaultKind.MISSING_EVENTS: "bytes {0} to {1} are missing or damaged",
    FaultKind.LOST_EXPERIENCE: "{details}",
    FaultKind.NOT_RECORDED: "{0} {lines} left out when this was recorded ({details})",
    FaultKind.NO_TRAJECTORY: "{0} annotations from event {1} on are left out: no such trajectory was recorded before",
    FaultKind.NOT_SHOWN: (
        "Not all of the run could be read into the database ({details}). Its files are kept, and the supervisor tries "
        "again when it starts; `exgrpo db rebuild` builds the database again; if that does not help, report a bug"
    ),
}


def describe_fault(fault: Fault) -> str:
    """Return one sentence that begins with the file."""
    form = _SENTENCES[fault.kind]
    lines = "line was" if fault.position[:1] == (1,) else "lines were"
    what = form.format(*fault.position, details=fault.details.rstrip("."), lines=lines)
    return f"{fault.file}: {what}." if fault.file else f"{what}."
