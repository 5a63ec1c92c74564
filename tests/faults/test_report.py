import json
import re

import pytest

from tests.faults.report import DOCUMENT, RowResult, write_row

pytestmark = pytest.mark.slow

LINES = "before\n| 1 | a | b | yes | day | 2 s |\n| 11 | c | d | yes | day | 2 s |\n"


@pytest.mark.parametrize(("failed", "met"), [(set(), "yes"), ({"b"}, "**no**")])
def test_what_was_seen_of_a_row_goes_into_its_file_and_its_line(tmp_path, failed, met):
    document = tmp_path / "rows.md"
    document.write_text(LINES)
    document.with_suffix("").mkdir()
    write_row(
        1, RowResult(tests={"a", "b"}, passed={"a"}, failed=failed, seconds=1234.56, figures={"f": "2"}), document
    )
    content = json.loads((tmp_path / "rows" / "row-01.json").read_text())
    assert (content["met"], content["figures"], content["seconds"]) == (not failed, {"f": "2"}, 1234.6)
    row = f"| 1 | a | b | {met} | {content['date']} | 1,235 s on {content['cores']} cores |"
    assert document.read_text() == LINES.replace(LINES.splitlines()[1], row)


def test_row_is_whole_only_when_each_of_its_tests_ran():
    assert not RowResult(tests={"a", "b"}, passed={"a"}).is_whole
    assert RowResult(tests={"a", "b"}, passed={"a"}, failed={"b"}).is_whole


def test_each_row_of_the_document_has_its_file():
    lines = re.findall(r"^\| (\d+) \|.*\| (yes|\*\*no\*\*) \| (\S+) \|", DOCUMENT.read_text(), re.MULTILINE)
    files = [json.loads(path.read_text()) for path in sorted(DOCUMENT.with_suffix("").glob("row-*.json"))]
    assert lines == [(str(item["row"]), "yes" if item["met"] else "**no**", item["date"]) for item in files]
