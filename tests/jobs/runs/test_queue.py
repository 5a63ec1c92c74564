from jobs.runs.journal import JournalEntry, JournalKind
from jobs.runs.queue import add_request, asked_attempts


def entry(run_id: str, attempt: object, kind: JournalKind = JournalKind.RESUME_ASKED) -> JournalEntry:
    return JournalEntry("2026-11-24T12:00:00+00:00", kind, run_id, {"attempt": attempt}, "somebody")


def test_the_newest_attempt_counts_in_the_order_of_asking():
    entries = [entry("a", 1, JournalKind.SUBMITTED), entry("b", 1), entry("a", 2), entry("c", 1)]
    assert list(asked_attempts(entries).items()) == [("b", 1), ("a", 2), ("c", 1)]


def test_an_older_attempt_than_the_one_asked_for_asks_for_nothing():
    asked = {"a": 3}
    assert not add_request(asked, entry("a", 2))
    assert not add_request(asked, entry("a", "4"))
    assert not add_request(asked, entry("a", 4, JournalKind.NOTED))
    assert asked == {"a": 3}
    assert add_request(asked, entry("a", 3))
