from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest
import yaml

from jobs.runs.named_entries import SAVED_VIEWS, delete_draft, list_drafts, load_draft, save_draft
from jobs.specs.presets import read_mapping
from jobs.specs.train import SpecError, load_spec


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


def test_a_changed_letter_is_a_fault_until_the_file_is_moved_away(tmp_path):
    SAVED_VIEWS.save(tmp_path, "mine", {"axis": "step"})
    path = tmp_path / "workbench" / "views.json"
    assert SAVED_VIEWS.find_fault(tmp_path) == ""
    path.write_text(path.read_text().replace("step", "stop"))
    assert "views.json: expected saved views" in SAVED_VIEWS.find_fault(tmp_path)
    path.unlink()
    SAVED_VIEWS.save(tmp_path, "mine", {"axis": "step"})
    SAVED_VIEWS.delete(tmp_path, "mine")
    assert (SAVED_VIEWS.list(tmp_path), SAVED_VIEWS.find_fault(tmp_path)) == ({}, "")


def test_draft_is_a_file_that_a_run_can_be_started_from(tmp_path):
    path = save_draft(tmp_path, "my run", {"name": "my run", "num_steps": 7})
    assert load_spec(path).num_steps == 7
    assert list_drafts(tmp_path) == ["my run"]


def test_draft_that_cannot_run_is_kept_and_filled_up_with_defaults(tmp_path):
    save_draft(tmp_path, "a", {"num_steps": None, "optim": {"learning_rate": 2e-6}})
    draft = load_draft(tmp_path, "a")
    assert draft["num_steps"] is None
    assert draft["optim"]["learning_rate"] == 2e-6
    assert draft["optim"]["beta1"] == 0.9


def test_saving_again_replaces_and_deleting_twice_is_no_error(tmp_path):
    save_draft(tmp_path, "a", {"num_steps": 1})
    path = save_draft(tmp_path, "a", {"num_steps": 2})
    assert yaml.safe_load(path.read_text())["num_steps"] == 2
    delete_draft(tmp_path, "a")
    delete_draft(tmp_path, "a")
    assert list_drafts(tmp_path) == []


def test_draft_with_a_changed_byte_is_refused_by_page_and_command_until_the_change_is_meant(tmp_path):
    path = save_draft(tmp_path, "a", {"num_steps": 7})
    path.write_text(path.read_text().replace("7", "9"))
    for read in (lambda: load_draft(tmp_path, "a"), lambda: load_spec(path)):
        with pytest.raises(SpecError, match="differs from what was saved"):
            read()
    path.write_text(path.read_text().partition("\n")[2])
    assert load_draft(tmp_path, "a")["num_steps"] == 9


def test_no_changed_bit_and_no_cut_of_a_draft_is_read_as_another_one(tmp_path):
    saved = {"name": "my run", "num_steps": 7, "optim": {"learning_rate": 2e-6}}
    path = save_draft(tmp_path, "a", saved)
    whole = path.read_bytes()
    flips = [whole[:index] + bytes([whole[index] ^ 1 << bit]) + whole[index + 1 :]
             for index in range(len(whole)) for bit in range(8)]  # fmt: skip
    for damaged in flips + [whole[:length] for length in range(len(whole))]:
        path.write_bytes(damaged)
        try:
            assert read_mapping(path) == saved
        except SpecError:
            continue


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x\n"])
def test_name_that_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(SpecError, match="name: expected"):
        save_draft(tmp_path, name, {})


def test_missing_draft_is_one_sentence(tmp_path):
    with pytest.raises(SpecError, match="cannot be read"):
        load_draft(tmp_path, "gone")
