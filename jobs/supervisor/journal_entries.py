"""Writing the journal's annotations of runs into the database."""

import logging
from datetime import datetime

from db.connections.session import Database, concerns_database
from db.ingest import annotations
from db.ingest.events import read_position, unannounced_runs
from db.rows.chains_of_thought import SavedCase
from db.rows.runs import UnknownRunError
from db.rows.trajectories import MarkedTrajectory
from jobs.runs.journal import Journal, JournalEntry, JournalKind

logger = logging.getLogger(__name__)

_ABOUT_CASES = frozenset({JournalKind.CASE_MARKED, JournalKind.CASE_UNMARKED})
_ABOUT_ONE = frozenset(
    {
        JournalKind.VERDICT_SET,
        JournalKind.VERDICT_CLEARED,
        JournalKind.TRAJECTORY_MARKED,
        JournalKind.TRAJECTORY_UNMARKED,
    }
)


def apply_journal(database: Database, journal: Journal) -> set[str]:
    """Write tags, notes, names and other entries of the journal into the database; return the runs that it deleted.

    It reads from where the last read ended; of runs that are new in the database, all entries are ingested.
    """
    new_run_ids = unannounced_runs(database)
    saved = int(read_position(database, annotations.JOURNAL_SOURCE) or 0)
    entries, position = journal.read_from(saved)
    if new_run_ids:
        others = [entry for entry in entries if entry.run_id not in new_run_ids]
        entries = [entry for entry in journal.entries() if entry.run_id in new_run_ids] + others
    deleted = set()
    for entry in entries:
        try:
            if entry.kind is JournalKind.DELETED and not (journal.runs_root / entry.run_id).exists():
                annotations.forget_run(database, entry.run_id)
                deleted.add(entry.run_id)
            _apply(database, entry)
        except UnknownRunError:
            continue  # its entries are ingested with the run itself
        except Exception as error:  # an entry of a restored journal, whatever it holds, must not end the supervisor
            if concerns_database(error):
                raise
            logger.warning("A journal entry is skipped: %s", error)
    if position != saved or new_run_ids:
        annotations.save_journal_position(database, str(position), new_run_ids)
    return deleted


def _apply(database: Database, entry: JournalEntry) -> None:
    if entry.kind is JournalKind.TAGGED:
        annotations.add_tag(database, entry.run_id, str(entry.data["tag"]))
    elif entry.kind is JournalKind.UNTAGGED:
        annotations.remove_tag(database, entry.run_id, str(entry.data["tag"]))
    elif entry.kind is JournalKind.NOTED:
        annotations.add_note(database, entry.run_id, datetime.fromisoformat(entry.at), str(entry.data["text"]))
    elif entry.kind in (JournalKind.ARCHIVED, JournalKind.UNARCHIVED):
        annotations.set_archived(database, entry.run_id, entry.kind is JournalKind.ARCHIVED)
    elif entry.kind is JournalKind.RENAMED:
        annotations.set_name(database, entry.run_id, str(entry.data["name"]))
    elif entry.kind in _ABOUT_CASES:
        _apply_to_case(database, entry)
    elif entry.kind in _ABOUT_ONE:
        _apply_to_trajectory(database, entry)


def _apply_to_case(database: Database, entry: JournalEntry) -> None:
    low, high = int(entry.data["low_trajectory_id"]), int(entry.data["high_trajectory_id"])
    case = SavedCase(entry.run_id, int(entry.data["attempt"]), low, high)
    name = str(entry.data["case_set"])
    if entry.kind is JournalKind.CASE_MARKED:
        annotations.save_case(database, name, case, datetime.fromisoformat(entry.at))
    else:
        annotations.remove_case(database, name, case)


def _apply_to_trajectory(database: Database, entry: JournalEntry) -> None:
    at = datetime.fromisoformat(entry.at)
    key = (entry.run_id, int(entry.data["attempt"]), int(entry.data["trajectory_id"]))
    if entry.kind is JournalKind.VERDICT_SET:
        annotations.set_verdict(database, *key, bool(entry.data["is_valid"]), at)
    elif entry.kind is JournalKind.VERDICT_CLEARED:
        annotations.clear_verdict(database, *key)
    elif entry.kind is JournalKind.TRAJECTORY_MARKED:
        mark = MarkedTrajectory(*key, str(entry.data["mark"]), str(entry.data["comment"]))
        annotations.set_mark(database, mark, at)
    else:
        annotations.remove_mark(database, MarkedTrajectory(*key, str(entry.data["mark"])))
