import json

import pytest

from exgrpo.jobs.runs.journal import Journal, JournalEntry, JournalKind, add_request
from exgrpo_core.bounded_json import seal

pytestmark = pytest.mark.slow


def test_entries_come_back_in_order_with_text_of_any_characters(tmp_path):
    journal = Journal(tmp_path)
    assert journal.entries() == []
    journal.append(JournalKind.SUBMITTED, "a", attempt=1)
    texts = ["line one\nline two \u2028 end", "half \ud800 pair", "whole"]
    for text in texts:
        journal.append(JournalKind.NOTED, "a", text=text)
    first, *others = journal.entries()
    assert (first.kind, first.data) == (JournalKind.SUBMITTED, {"attempt": 1})
    assert [entry.data["text"] for entry in others] == texts


def test_reading_goes_on_where_it_ended(tmp_path):
    journal = Journal(tmp_path)
    journal.append(JournalKind.NOTED, "a", text="one")
    entries, offset = journal.read_from(0)
    assert len(entries) == 1
    journal.append(JournalKind.NOTED, "a", text="two")
    (entry,), end = journal.read_from(offset)
    assert entry.data["text"] == "two"
    assert journal.read_from(end) == ([], end)


def test_torn_line_and_unknown_kind_are_passed_over_and_the_next_entry_stands_alone(tmp_path):
    journal = Journal(tmp_path)
    journal.append(JournalKind.NOTED, "a", text="one")
    unknown = {"at": "2026-01-01", "kind": "from_the_future", "run_id": "a", "data": {}, "by": ""}
    with journal.path.open("ab") as file:
        file.write(seal(json.dumps(unknown).encode()) + b'\n{"at": "2026-01-01", "kind": "no')
    assert len(journal.entries()) == 1
    journal.append(JournalKind.NOTED, "a", text="two")
    assert [entry.data["text"] for entry in journal.entries()] == ["one", "two"]


def entry(run_id: str, attempt: object, kind: JournalKind = JournalKind.RESUME_ASKED) -> JournalEntry:
    return JournalEntry("2026-11-24T12:00:00+00:00", kind, run_id, {"attempt": attempt}, "somebody")


def test_the_newest_attempt_counts_in_the_order_of_asking():
    entries = [entry("a", 1, JournalKind.SUBMITTED), entry("b", 1), entry("a", 2), entry("c", 1)]
    asked: dict[str, int] = {}
    assert all(add_request(asked, one) for one in entries)
    assert list(asked.items()) == [("b", 1), ("a", 2), ("c", 1)]


def test_an_older_attempt_than_the_one_asked_for_asks_for_nothing():
    asked = {"a": 3}
    assert not add_request(asked, entry("a", 2))
    assert not add_request(asked, entry("a", "4"))
    assert not add_request(asked, entry("a", 4, JournalKind.NOTED))
    assert asked == {"a": 3}
    assert add_request(asked, entry("a", 3))
