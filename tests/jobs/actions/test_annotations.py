import logging

import pytest

from db.connections.opening import open_database
from db.queries.cases import sets_of_run
from db.queries.judging import get_verdicts
from db.rows.chains_of_thought import SavedCase
from jobs.actions import annotations
from jobs.execution.supervisor.open_index import ingest_all, rebuild_index
from jobs.runs.journal import Journal, JournalKind
from tests.jobs.evaluation.judging.chain_runs import record_chains

pytestmark = pytest.mark.slow

CASE = SavedCase("trained", 1, 0, 3)


@pytest.fixture
def runs_root(tmp_path):
    record_chains(tmp_path, [["valid", "lucky", "wrong", "code"]])
    return tmp_path


def known(runs_root):
    """Return the sets of the case and the user's verdict on trajectory 1."""
    database = open_database(None, runs_root)
    found = sets_of_run(database, "trained").get(CASE, ()), get_verdicts(database, "trained", 1).user
    database.close()
    return found


def test_what_was_said_last_counts_also_after_a_rebuild(runs_root):
    annotations.mark_case(runs_root, "kept", CASE)
    annotations.mark_case(runs_root, " taken out ", CASE)
    annotations.mark_case(runs_root, "taken out", CASE, is_kept=False)
    annotations.set_verdict(runs_root, "trained", 1, 1, True)
    annotations.set_verdict(runs_root, "trained", 1, 1, False)
    ingest_all(runs_root, None)
    assert known(runs_root) == (("kept",), False)
    rebuild_index(runs_root, None)
    assert known(runs_root) == (("kept",), False)
    annotations.set_verdict(runs_root, "trained", 1, 1, None)
    ingest_all(runs_root, None)
    assert known(runs_root) == (("kept",), None)


def test_an_entry_that_cannot_be_read_is_passed_over(runs_root, caplog):
    Journal(runs_root).append(JournalKind.VERDICT_SET, "trained", attempt=None, trajectory_id=1, is_valid=True)
    Journal(runs_root).append(JournalKind.CASE_MARKED, "trained", case_set="kept", attempt=1)
    annotations.set_verdict(runs_root, "trained", 1, 1, True)
    with caplog.at_level(logging.WARNING):
        ingest_all(runs_root, None)
    assert caplog.text.count("A journal entry is skipped") == 2
    assert known(runs_root) == ((), True)
