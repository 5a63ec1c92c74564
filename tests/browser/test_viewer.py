"""The wheel in an environment of its own, without PyTorch: pages and commands, and what is said of what is left out."""

import subprocess
import sys
from zipfile import ZipFile

import pytest

from exgrpo.app.page_list import PATHS
from exgrpo.jobs.training.warm_start import SHIPPED_WEIGHTS
from tests.app import recorded, web_server
from tests.browser.clicks import IDLE, enter
from tests.jobs.runs.rollout_formats.test_verl_dumps import line
from tests.tools import report_missing

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FOLDER = web_server.REPOSITORY / ".venv-viewer" / "bin"
MAX_BYTES = 650_000_000


@pytest.fixture(scope="module", autouse=True)
def wheel(tmp_path_factory):
    if not (FOLDER / "python").exists():
        report_missing("The environment of the viewer is missing; `make .venv-viewer/.installed` makes it.")
    folder = tmp_path_factory.mktemp("wheel")
    pip = ["-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, *pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, web_server.REPOSITORY],
        check=True,
    )
    [built] = folder.glob("*.whl")
    names = ZipFile(built).namelist()
    assert f"exgrpo/jobs/training/{SHIPPED_WEIGHTS.name}" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"exgrpo", "exgrpo_core"}
    subprocess.run([FOLDER / "python", *pip, "install", "--no-deps", "--force-reinstall", built], check=True)


@pytest.fixture(scope="module")
def workbench(tmp_path_factory):
    runs_root = tmp_path_factory.mktemp("runs")
    recorded.record_all(runs_root)
    served = web_server.start(runs_root, python=FOLDER / "python")
    yield served
    served.stop()


def exgrpo(runs_root, *words):
    done = subprocess.run(
        [FOLDER / "exgrpo", *words, "--runs-root", runs_root], cwd=runs_root, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_what_pip_installs_is_small():
    """Bytes of files, with bytecode; pip itself is there before. A disk that counts whole blocks has 8% more."""
    files = [path for path in FOLDER.parent.rglob("*") if path.is_file() and "pip" not in path.parts]
    assert sum(path.lstat().st_size for path in files) <= MAX_BYTES


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_drawn_without_the_packages_of_training(open_page, path):
    watched = open_page(f"{path}?run=run-finished")
    watched.page.get_by_role("heading", level=1).wait_for()
    watched.page.locator(IDLE).wait_for()
    assert watched.page.get_by_role("button", name="Try again").count() == 0
    assert watched.errors == []


def test_rollouts_of_another_program_are_opened_by_the_command_of_the_wheel(browser, tmp_path):
    dump = tmp_path / "rollouts"
    dump.mkdir()
    (dump / "1.jsonl").write_text(line(0, 0, 1.0) + line(0, 1, 0.0))
    served = web_server.view(dump, cache=tmp_path / "cache", python=FOLDER / "python", folder=tmp_path)
    try:
        page = browser.new_page()
        page.set_default_timeout(90_000)
        enter(page, served.link)
        page.get_by_text("1 of 1 run").wait_for()
        assert page.get_by_role("button", name="Try again").count() == 0
        page.locator("td.curve").wait_for(state="attached")
        assert page.locator("td.curve svg").count() == 0, "one step is no curve"
    finally:
        served.stop()


def test_what_trains_and_scores_names_what_to_install_and_writes_nothing(tmp_path):
    absent = subprocess.run([FOLDER / "python", "-c", "import torch"], capture_output=True, cwd=tmp_path)
    assert b"ModuleNotFoundError" in absent.stderr
    for words in (
        ["train", "--preset", "chains-exgrpo"],
        ["demo", "--headless"],
        ["probe", "--preset", "chains-exgrpo"],
    ):
        code, text = exgrpo(tmp_path, *words)
        assert code != 0
        assert "exgrpo-workbench[train]" in text
        assert len(text.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    assert exgrpo(tmp_path, "runs")[0] == 0
    code, text = exgrpo(tmp_path, "runs", "--database-url", "postgresql://nobody@127.0.0.1/none")
    assert code != 0
    assert "exgrpo-workbench[postgresql]" in text
