from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from jobs.runs.named_entries import SAVED_VIEWS
from jobs.specs.mistakes import SpecError


def save_some(root, first):
    for number in range(first, first + 10):
        SAVED_VIEWS.save(root, f"view {number}", {"axis": "step"})


def test_writers_at_the_same_time_lose_no_view(tmp_path):
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(partial(save_some, tmp_path), (0, 10)))
    assert set(SAVED_VIEWS.list(tmp_path)) == {f"view {number}" for number in range(20)}


@pytest.mark.parametrize("content", ["{", "[1]", '{"a": 3}'])
def test_a_file_that_cannot_be_read_is_kept(tmp_path, content):
    path = tmp_path / "workbench" / "views.json"
    path.parent.mkdir()
    path.write_text(content)
    assert SAVED_VIEWS.list(tmp_path) == {}
    assert "expected saved views as JSON" in SAVED_VIEWS.find_fault(tmp_path)
    with pytest.raises(SpecError, match=r"views.json: expected saved views as JSON; move the file away"):
        SAVED_VIEWS.save(tmp_path, "mine", {})
    with pytest.raises(SpecError, match=r"views.json: expected saved views"):
        SAVED_VIEWS.delete(tmp_path, "mine")
    assert path.read_text() == content


def test_views_are_kept_replaced_and_deleted(tmp_path):
    SAVED_VIEWS.save(tmp_path, "b", {"axis": "step"})
    SAVED_VIEWS.save(tmp_path, "a", {"axis": "step"})
    SAVED_VIEWS.save(tmp_path, "b", {"axis": "tokens"})
    assert list(SAVED_VIEWS.list(tmp_path).items()) == [("a", {"axis": "step"}), ("b", {"axis": "tokens"})]
    SAVED_VIEWS.delete(tmp_path, "a")
    SAVED_VIEWS.delete(tmp_path, "not there")
    assert list(SAVED_VIEWS.list(tmp_path)) == ["b"]
    with pytest.raises(SpecError, match="name: expected letters"):
        SAVED_VIEWS.save(tmp_path, "<b>", {})


def test_a_changed_letter_is_a_fault_but_not_the_missing_checksum_of_an_older_version(tmp_path):
    SAVED_VIEWS.save(tmp_path, "mine", {"axis": "step"})
    path = tmp_path / "workbench" / "views.json"
    assert SAVED_VIEWS.find_fault(tmp_path) == ""
    path.write_text(path.read_text().replace("step", "stop"))
    assert "views.json: expected saved views" in SAVED_VIEWS.find_fault(tmp_path)
    path.write_text('{"old": {"axis": "step"}}')
    assert SAVED_VIEWS.list(tmp_path) == {"old": {"axis": "step"}}
    SAVED_VIEWS.delete(tmp_path, "old")
    assert (SAVED_VIEWS.list(tmp_path), SAVED_VIEWS.find_fault(tmp_path)) == ({}, "")
