"""Fixtures of all tests, and an environment in which no test reaches the network or takes more than one core."""

import importlib.util
import os
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from exgrpo.jobs.runs import people
from tests.verl_on_cpu import VARIABLES

for _name, _value in VARIABLES.items():
    os.environ.setdefault(_name, _value)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("STREAMLIT_BROWSER_GATHER_USAGE_STATS", "false")

if importlib.util.find_spec("hypothesis") is not None:  # the verl engine's environment has none
    from hypothesis import settings

    # By the clock a busy machine would fail what is right.
    settings.register_profile("patient", deadline=None, max_examples=40)
    settings.load_profile("patient")

REPOSITORY = Path(__file__).resolve().parents[1]
if importlib.util.find_spec("verl") is not None:  # whose processes load `tests.verl_on_cpu`
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))


def pytest_configure():
    """Undo that a shell lets tests which it starts in the background, and their programs, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Mark what needs a PostgreSQL server, and put the longest files first.

    All workers end together then.
    """
    for item in items:
        variants = getattr(getattr(item, "callspec", None), "params", {}).values()
        fixtures = getattr(item, "fixturenames", ())
        if "postgresql" in map(str, variants) or any(name.startswith("postgres") for name in fixtures):
            item.add_marker(pytest.mark.postgres)
    seconds: Counter[Path] = Counter()
    for item in items:
        seconds[item.path] += expected_seconds(item)
    items.sort(key=lambda item: -seconds[item.path])


def expected_seconds(item):
    timeout = item.get_closest_marker("timeout")
    if timeout is not None:
        return timeout.args[0] / 15
    return 5.0 if item.get_closest_marker("slow") or item.get_closest_marker("browser") else 0.1


@pytest.fixture(autouse=True)
def own_main_module(monkeypatch):
    """Undo that a page tested in this process leaves itself as `__main__`, which spawned processes would then run."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture(autouse=True)
def person_of_the_test(monkeypatch):
    """For whom a test lets this process act holds for it alone."""
    monkeypatch.setattr(people, "_who_asks", [*people._who_asks])


@pytest.fixture(scope="session")
def postgres_server():
    """The URL of a PostgreSQL server for all tests of this process; each takes a database of its own."""
    from tests.postgres import running_server  # with SQLAlchemy, which TRL's environment lacks

    with running_server() as url:
        yield url


@pytest.fixture
def synced(monkeypatch):
    """Files and folders in the order in which they are written to the disk, by their names of then."""
    paths: list[Path] = []

    def note(sync, descriptor):
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(note, getattr(os, name)))
    return paths


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_dir():
    folder = Path(os.environ.get("EXGRPO_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"No evaluation data at {folder}; name its folder with EXGRPO_SHARED.")
    return folder
