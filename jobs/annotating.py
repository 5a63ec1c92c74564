"""What users say of trajectories, written to the journal: cases worth keeping, and verdicts of their own."""

from pathlib import Path

from db.case_rows import SavedCase
from jobs.commands import CommandError, open_run
from jobs.journal import Journal, JournalKind

MAX_CASE_SET_CHARACTERS = 60


def mark_case(runs_root: Path, case_set: str, case: SavedCase, is_kept: bool = True) -> None:
    """Put a case into a named set, or take it out.

    Raises:
        CommandError: No such run, or no usable name.
    """
    run = open_run(runs_root, case.run_id)
    name = case_set.strip()
    if not name or len(name) > MAX_CASE_SET_CHARACTERS or not name.isprintable():
        raise CommandError(
            f"set of cases: expected a name of 1 to {MAX_CASE_SET_CHARACTERS} printable characters, got {name[:80]!r}."
        )
    Journal(runs_root).append(
        JournalKind.CASE_MARKED if is_kept else JournalKind.CASE_UNMARKED,
        run.run_id,
        case_set=name,
        attempt=case.attempt,
        low_trajectory_id=case.low_trajectory_id,
        high_trajectory_id=case.high_trajectory_id,
    )


def set_verdict(runs_root: Path, run_id: str, attempt: int, trajectory_id: int, is_valid: bool | None) -> None:
    """Say whether a trajectory's chain of thought is valid, over what any judge says; None takes that back.

    Raises:
        CommandError: There is no such run.
    """
    run = open_run(runs_root, run_id)
    place = {"attempt": attempt, "trajectory_id": trajectory_id}
    if is_valid is None:
        Journal(runs_root).append(JournalKind.VERDICT_CLEARED, run.run_id, **place)
    else:
        Journal(runs_root).append(JournalKind.VERDICT_SET, run.run_id, **place, is_valid=is_valid)
