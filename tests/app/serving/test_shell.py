"""The page shell: which scripts a page loads before its own script has run."""

import re
from pathlib import Path

import pytest
import streamlit

from exgrpo.app.components.widgets import chart
from exgrpo.app.page_list import PATHS
from exgrpo.app.serving import shell


def preloaded(path):
    scripts = re.findall(r'<link rel="modulepreload" crossorigin href="\./([^"]+)">', shell.html(path))
    return [script for script in scripts if re.search("Bidi|charts", script)]


def test_pages_load_the_scripts_of_their_charts_and_tables_at_once():
    (component, charts), (of_list,) = preloaded("/run"), preloaded("/")
    assert charts == chart.address()
    assert [Path(name).name.partition(".")[0] for name in (component, of_list)] == ["BidiComponent"] * 2
    assert all((Path(streamlit.__file__).parent / "static" / name).is_file() for name in (component, of_list))
    assert preloaded("/methods") == []
    assert len(preloaded(shell.TRAJECTORIES)) == 1
    assert {*PATHS, shell.TRAJECTORIES} >= shell.WITH_CHARTS | shell.WITH_TABLES


@pytest.mark.parametrize("path", PATHS)
def test_every_page_has_the_same_inline_scripts(path):
    scripts = re.findall(r"<script>(.*?)</script>", shell.html(path), re.DOTALL)
    assert tuple(map(shell.script_hash, scripts)) == shell.inline_script_hashes()
