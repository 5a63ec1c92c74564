import re

import pytest

from tests.browser.conftest import BROWSER_NAMES, find_browser


@pytest.mark.parametrize("name", BROWSER_NAMES)
def test_browser_is_found_by_each_of_its_names_wherever_path_leads(tmp_path, name):
    executable = tmp_path / name
    executable.touch(mode=0o755)
    assert find_browser(str(tmp_path)) == str(executable)


def test_no_browser_is_told_by_none(tmp_path):
    assert find_browser(str(tmp_path)) is None


def test_tools_and_tests_look_for_the_same_browsers(repository):
    (looked_for,) = re.findall(r"has_any (.*chromium.*?) \|\|", (repository / ".ci/tools").read_text())
    assert tuple(looked_for.split()) == BROWSER_NAMES
