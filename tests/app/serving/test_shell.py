"""The page shell: which scripts a page loads before its own script has run."""

import re
from pathlib import Path

import pytest
import streamlit

from app.page_list import PATHS
from app.serving import shell


def preloaded(path):
    return re.findall(
        r'<link rel="modulepreload" crossorigin href="\./static/js/((?:Plotly|DataFrame)[^"]+)">', shell.html(path)
    )


def test_pages_load_the_scripts_of_their_charts_and_tables_at_once():
    folder = Path(streamlit.__file__).parent / "static" / "static" / "js"
    (of_run,), (of_list,) = preloaded("/run"), preloaded("/")
    assert (of_run.partition(".")[0], of_list.partition(".")[0]) == ("PlotlyChart", "DataFrame")
    assert all((folder / name).is_file() for name in (of_run, of_list))
    assert preloaded("/paper") == []
    assert set(PATHS) >= shell.WITH_CHARTS | shell.WITH_TABLES


@pytest.mark.parametrize("path", PATHS)
def test_every_page_has_the_same_inline_scripts(path):
    scripts = re.findall(r"<script>(.*?)</script>", shell.html(path), re.DOTALL)
    assert tuple(map(shell.script_hash, scripts)) == shell.inline_script_hashes()
