"""Server time of pages: their scripts run in this process, as the server runs them, with no answer kept from before."""

from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import streamlit as st
from streamlit import config
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import AppTest, app_test

from app import settings, theme
from bench.stopwatch import Stopwatch

_MAIN_SCRIPT = Path(settings.__file__).parent / "main.py"
_SERVER_OPTIONS = ("browser.gatherUsageStats", "runner.magicEnabled")
"""What the server sets otherwise than Streamlit by itself, and what takes time in a script."""


def time_script(page: str, query: Mapping[str, str], changes: Mapping[str, list[str]], repeats: int) -> Stopwatch:
    """Return the time of each run of a page's script.

    Args:
        page: File name in `app/app_pages`, without its ending.
        query: The page's address.
        changes: Parameters of the address that differ from run to run, so that nothing remembered answers.
        repeats: How many runs to time, after one that loads modules and opens the database.

    Raises:
        RuntimeError: The page showed an error.
    """
    for option in _SERVER_OPTIONS:
        config.set_option(option, theme.streamlit_options("", 0)[option])
    page_test = AppTest.from_file(str(_MAIN_SCRIPT), default_timeout=120)
    for key, value in query.items():
        page_test.query_params[key] = value
    watch = Stopwatch()
    with patch.object(app_test, "ScriptCache", return_value=ScriptCache()):  # compiled once, as the server does
        page_test.switch_page(f"app_pages/{page}.py").run()
        for item in range(repeats):
            for key, values in changes.items():
                page_test.text_input(key=key).set_value(values[item % len(values)])
            st.cache_data.clear()
            with watch.lap():
                page_test.run()
            if page_test.exception:
                raise RuntimeError(f"{page}: {page_test.exception[0].value}")
    return watch
