"""The table of docs/reliability.md: from row files, one line a row."""

import json

import pytest

from tests.faults.report import DOCUMENT, END, START, RowResult, modules_of, read_rows, rewrite_table, table, write_row
from tests.faults.rows import ROWS


def test_row_file_holds_what_was_seen_and_when(tmp_path):
    result = RowResult(tests={"a"}, passed={"a"}, seconds=12.34, figures={"resumed": "200 of 200"})
    write_row(tmp_path, 3, result)
    content = json.loads((tmp_path / "row-03.json").read_text())
    assert content["row"] == 3
    assert content["met"] is True
    assert content["date"]
    assert content["figures"] == {"resumed": "200 of 200"}
    assert content["seconds"] == 12.3
    assert content["cores"] > 0


def test_row_with_a_failed_test_is_not_met(tmp_path):
    write_row(tmp_path, 3, RowResult(tests={"a", "b"}, passed={"a"}, failed={"b"}))
    (row,) = read_rows(tmp_path)
    assert row["met"] is False
    assert "| **no** |" in table([row])


def test_row_is_whole_only_when_each_of_its_tests_ran():
    assert not RowResult(tests={"a", "b"}, passed={"a"}).is_whole
    assert RowResult(tests={"a", "b"}, passed={"a"}, failed={"b"}).is_whole


def test_two_figures_of_one_name_are_refused():
    result = RowResult()
    result.note_figure("resumed", "2 of 2")
    with pytest.raises(ValueError, match="resumed"):
        result.note_figure("resumed", "3 of 3")


def test_modules_of_a_row_are_those_that_name_it(tmp_path):
    for name, number in (("one", 1), ("eleven", 11)):  # written so that this module itself names no row
        (tmp_path / f"test_{name}.py").write_text(f"pytestmark = pytest.mark.fault_row({number})")
    assert modules_of(1, tmp_path) == {"test_one.py"}


def test_table_is_replaced_and_the_text_around_it_stays(tmp_path):
    document = tmp_path / "reliability.md"
    document.write_text(f"before\n{START}\nstale\n{END}\nafter\n")
    rewrite_table(document, [])
    text = document.read_text()
    assert text.startswith(f"before\n{START}\n| Row ")
    assert text.endswith(f"{END}\nafter\n")
    assert "stale\n" not in text
    assert text.count("not run") == len(ROWS)


def test_the_documents_table_is_that_of_the_row_files():
    results = read_rows(DOCUMENT.with_suffix(""))
    assert table(results) in DOCUMENT.read_text(encoding="utf-8")
