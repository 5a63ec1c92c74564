import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from app import settings
from tests.app import judged, played, recorded

MAIN_SCRIPT = Path(settings.__file__).parent / "main.py"


@pytest.fixture(scope="session")
def recorded_root(tmp_path_factory):
    """A runs root with every recorded run, made once; tests work on copies."""
    root = tmp_path_factory.mktemp("recorded") / "runs"
    root.mkdir()
    recorded.record_all(root)
    return root


@pytest.fixture
def recorded_runs(runs_root, recorded_root):
    """The runs root of this test, with every recorded run in it."""
    shutil.copytree(recorded_root, runs_root, dirs_exist_ok=True)
    recorded.beat(runs_root, datetime.now(UTC))
    return runs_root


@pytest.fixture(scope="session")
def played_root(tmp_path_factory):
    """A runs root with runs that Algorithm 1 played, made once; tests work on copies."""
    root = tmp_path_factory.mktemp("played") / "runs"
    root.mkdir()
    played.record_all(root)
    return root


@pytest.fixture
def played_runs(runs_root, played_root):
    """The runs root of this test, with every played run in it."""
    shutil.copytree(played_root, runs_root, dirs_exist_ok=True)
    recorded.beat(runs_root, datetime.now(UTC))
    return runs_root


@pytest.fixture(scope="session")
def empty_root(tmp_path_factory):
    """A runs root without runs, made once: its database goes through every revision of the schema."""
    root = tmp_path_factory.mktemp("empty") / "runs"
    root.mkdir()
    recorded.record(root)
    return root


@pytest.fixture
def runs_root(tmp_path, empty_root):
    """An empty runs root that the pages of this test read, with a live supervisor."""
    _forget()
    shutil.copytree(empty_root, tmp_path, dirs_exist_ok=True)
    recorded.beat(tmp_path, datetime.now(UTC))
    settings.configure(settings.AppSettings(tmp_path))
    yield tmp_path
    _forget()


@pytest.fixture
def open_page(runs_root):  # noqa: ARG001 - the pages read it
    """Open a page of the real entry script: `open_page("run", run="id")`."""

    def opened(name: str, **query) -> AppTest:
        page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=30)
        for key, value in query.items():
            page.query_params[key] = value
        page.switch_page(f"app_pages/{name}.py").run()
        return page

    return opened


def _forget() -> None:
    st.cache_data.clear()
    st.cache_resource.clear()


@pytest.fixture(scope="session")
def judged_root(tmp_path_factory):
    """A runs root with chains runs and a judge's votes, made once; tests work on copies."""
    root = tmp_path_factory.mktemp("judged") / "runs"
    root.mkdir()
    judged.record_all(root)
    return root


@pytest.fixture
def judged_runs(runs_root, judged_root):
    """The runs root of this test, with chains runs and a judge's votes in it."""
    shutil.copytree(judged_root, runs_root, dirs_exist_ok=True)
    recorded.beat(runs_root, datetime.now(UTC))
    return runs_root
