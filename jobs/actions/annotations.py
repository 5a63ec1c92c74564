"""Users' annotations of trajectories, written to the journal: marks, saved cases and verdicts."""

from pathlib import Path

from exgrpo.db.rows.chains_of_thought import SavedCase
from exgrpo.db.rows.trajectories import MarkedTrajectory
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.people import Role, needs

MAX_NAME_CHARACTERS = 60
MAX_COMMENT_CHARACTERS = 10_000


@needs(Role.OPERATOR)
def mark_case(runs_root: Path, case_set: str, case: SavedCase, is_kept: bool = True) -> None:
    """Put a case into a named set, or remove it.

    Raises:
        CommandError: No such run, or no usable name.
    """
    run = RunDirectory.open(runs_root, case.run_id)
    name = _usable_name("set of cases", case_set)
    Journal(runs_root).append(
        JournalKind.CASE_MARKED if is_kept else JournalKind.CASE_UNMARKED,
        run.run_id,
        case_set=name,
        attempt=case.attempt,
        low_trajectory_id=case.low_trajectory_id,
        high_trajectory_id=case.high_trajectory_id,
    )


@needs(Role.OPERATOR)
def mark_trajectory(runs_root: Path, mark: MarkedTrajectory, is_kept: bool = True) -> None:
    """Put a mark with a comment on a trajectory, or remove it.

    Raises:
        CommandError: No such run, no usable name, or too long a comment.
    """
    run = RunDirectory.open(runs_root, mark.run_id)
    name = _usable_name("mark", mark.mark)
    if len(mark.comment) > MAX_COMMENT_CHARACTERS:
        raise CommandError(
            f"comment: expected at most {MAX_COMMENT_CHARACTERS:,} characters, got {len(mark.comment):,}."
        )
    target: dict[str, object] = {"attempt": mark.attempt, "trajectory_id": mark.trajectory_id, "mark": name}
    if is_kept:
        Journal(runs_root).append(JournalKind.TRAJECTORY_MARKED, run.run_id, **target, comment=mark.comment.strip())
    else:
        Journal(runs_root).append(JournalKind.TRAJECTORY_UNMARKED, run.run_id, **target)


@needs(Role.OPERATOR)
def set_verdict(runs_root: Path, run_id: str, attempt: int, trajectory_id: int, is_valid: bool | None) -> None:
    """Set the user's verdict on a trajectory's chain of thought, which overrides judges; None clears it.

    Raises:
        CommandError: There is no such run.
    """
    run = RunDirectory.open(runs_root, run_id)
    target = {"attempt": attempt, "trajectory_id": trajectory_id}
    if is_valid is None:
        Journal(runs_root).append(JournalKind.VERDICT_CLEARED, run.run_id, **target)
    else:
        Journal(runs_root).append(JournalKind.VERDICT_SET, run.run_id, **target, is_valid=is_valid)


def _usable_name(field: str, given: str) -> str:
    name = given.strip()
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise CommandError(
            f"{field}: expected a name of 1 to {MAX_NAME_CHARACTERS} printable characters, got {name[:80]!r}."
        )
    return name
