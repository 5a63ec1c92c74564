import json
import re

import pytest

from tests.faults.report import DOCUMENT

pytestmark = pytest.mark.slow


def test_each_row_of_the_document_has_its_file():
    lines = re.findall(r"^\| (\d+) \|.*\| (yes|\*\*no\*\*) \| (\S+) \|", DOCUMENT.read_text(), re.MULTILINE)
    files = [json.loads(path.read_text()) for path in sorted(DOCUMENT.with_suffix("").glob("row-*.json"))]
    assert lines == [(str(item["row"]), "yes" if item["met"] else "**no**", item["date"]) for item in files]
