import json
import shutil
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from exgrpo.app import settings
from exgrpo.app.components.widgets import data_table
from tests.app import judged, played, recorded, scored

MAIN_SCRIPT = Path(settings.__file__).parent / "main.py"


SEEDS = {
    "recorded": recorded.record_all, "played": played.record_all, "judged": judged.record_all,
    "scored": scored.record_all,
}  # fmt: skip


@pytest.fixture(scope="session")
def seeded_root(tmp_path_factory):
    """`seeded_root("played")` is a runs root with runs that Algorithm 1 played; each root is made once."""

    @cache
    def made(name):
        root = tmp_path_factory.mktemp(name) / "runs"
        root.mkdir()
        SEEDS[name](root)
        return root

    return made


def _copy_of(name):
    @pytest.fixture(name=f"{name}_runs")
    def runs(runs_root, seeded_root):
        shutil.copytree(seeded_root(name), runs_root, dirs_exist_ok=True)
        recorded.beat(runs_root, datetime.now(UTC))
        return runs_root

    return runs


@pytest.fixture(autouse=True)
def settings_of_the_test(monkeypatch):
    """What a test configures, such as a view, holds for it alone."""
    monkeypatch.setattr(settings, "_settings", [*settings._settings])


@pytest.fixture(scope="session")
def share():
    """`share(root)` lets the pages of this test read a root that other tests read, too, with a live supervisor."""

    def shared(root):
        recorded.beat(root, datetime.now(UTC))
        settings.configure(settings.AppSettings(root))
        return root

    return shared


def _shared(name):
    """The root with those runs that all tests share, for tests that only read; none of its caches is cleared."""

    @pytest.fixture(name=f"{name}_shared")
    def root(seeded_root, share):
        return share(seeded_root(name))

    return root


recorded_runs, played_runs, judged_runs, scored_runs = map(_copy_of, SEEDS)
recorded_shared, played_shared, judged_shared, scored_shared = map(_shared, SEEDS)


@pytest.fixture(scope="session")
def empty_root(tmp_path_factory):
    """A runs root without runs, made once."""
    root = tmp_path_factory.mktemp("empty") / "runs"
    root.mkdir()
    recorded.record(root)
    return root


@pytest.fixture
def runs_root(tmp_path, empty_root):
    _forget()
    shutil.copytree(empty_root, tmp_path, dirs_exist_ok=True)
    recorded.beat(tmp_path, datetime.now(UTC))
    settings.configure(settings.AppSettings(tmp_path))
    yield tmp_path
    _forget()


@pytest.fixture
def open_page(request):
    """Open a page of the real entry script: `open_page("run", run="id")`. None may begin or end with an exception."""
    if not any(name.endswith("_shared") for name in request.fixturenames):
        request.getfixturevalue("runs_root")
    pages = []

    def opened(name, **query):
        page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=30)
        for key, value in query.items():
            page.query_params[key] = value
        page.switch_page(f"app_pages/{name}.py").run()
        assert not page.exception
        pages.append(page)
        return page

    yield opened
    assert not [page.exception for page in pages if page.exception]


@pytest.fixture
def exported(monkeypatch):
    """`exported(page, key)` opens a menu of downloads and returns the rows of its JSON file."""
    written = []

    def write(rows):
        written.append(data_table.as_json(rows))
        return written[-1]

    for formats in (data_table.FORMATS, data_table.WHOLE_FORMATS):
        monkeypatch.setitem(formats, "JSON", ("json", "application/json", write))

    def rows_of(page, key):
        page.session_state[f"export-{key}"] = True
        page.run()
        return json.loads(written[-1])

    return rows_of


def _forget():
    st.cache_data.clear()
    st.cache_resource.clear()
