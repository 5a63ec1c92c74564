"""What a run's folder says the run is, as far as it can be read: a run with damaged files is shown, with the damage."""

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

from db.rows.spec_fields import UNREADABLE_SPEC
from exgrpo_core.bounded_json import UnreadableFileError, parse_json, read_plain
from exgrpo_core.errors import InputError
from exgrpo_core.faults import Fault, FaultKind
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.specs.any_job import shape_mistakes


@dataclass(frozen=True, slots=True)
class Description:
    """The content of `run.json` and `spec.json`, or what is shown in its place, and the damage."""

    info: dict[str, Any]
    spec: dict[str, Any]
    faults: list[Fault]


def describe_run(run: RunDirectory) -> Description:
    """Read the files that say what a run is; nothing that they hold raises an error."""
    faults = list[Fault]()
    try:
        info = run.read_run_info()
    except RunDirectoryError:
        faults.append(Fault(FaultKind.UNREADABLE, "run.json", details="name, parent and time of creation are unknown"))
        info = _stand_in(run)
    try:
        spec, is_changed = _read_spec(run)
        faults += [Fault(FaultKind.CHANGED, "spec.json")] if is_changed else []
    except (InputError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).removeprefix(f"{run.spec_path}: ")
        faults.append(Fault(FaultKind.UNREADABLE, "spec.json", details=str(why)))
        spec = dict(UNREADABLE_SPEC)
    return Description(info, spec, faults)


def _read_spec(run: RunDirectory) -> tuple[dict[str, Any], bool]:
    """Return the specification and whether it differs from what was written."""
    content = read_plain(run.spec_path)
    spec = parse_json(content)
    if mistakes := shape_mistakes(spec):
        raise UnreadableFileError(mistakes[0])
    is_changed = False
    with contextlib.suppress(RunDirectoryError):
        is_changed = run.spec_crc() not in (None, crc32(content))
    return spec, is_changed


def _stand_in(run: RunDirectory) -> dict[str, Any]:
    changed_at = datetime.fromtimestamp(run.path.stat().st_mtime, UTC).isoformat(timespec="milliseconds")
    fields = {"name": run.run_id, "created_at": changed_at, "parent_run_id": None, "branched_from_step": None}
    return {"run_id": run.run_id} | fields
