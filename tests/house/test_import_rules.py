"""The import rules hold in the tree, and a planted violation of each kind of contract is caught."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.house.tracked import PACKAGES, REPOSITORY, source_files

pytestmark = pytest.mark.slow

TRAINING_LIBRARIES = ("torch", "ray", "verl", "vllm", "transformers")
TORCH_FREE_MODULES = (
    "exgrpo_core", "exgrpo_core.config", "exgrpo_core.engine", "exgrpo_core.step_report",
    "exgrpo_core.experience_management.bucket_sampler", "exgrpo_core.experience_management.replay_buffer",
    "exgrpo.jobs.specs.train", "exgrpo.jobs.cli.main",
)  # fmt: skip


def modules_of(package):
    files = [path for path in source_files() if path.parts[0] == package]
    return [".".join(("exgrpo", *path.with_suffix("").parts)).removesuffix(".__init__") for path in files]


def training_libraries_loaded_by(modules):
    program = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {TRAINING_LIBRARIES!r} if name in sys.modules]))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=120
    )
    return json.loads(finished.stdout.splitlines()[-1])


def lint_imports(tree, cache):
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-logo"]
    return subprocess.run(
        [*command, "--cache-dir", str(cache)],
        cwd=tree,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """What the linter read of files, by their time of change, which copies keep."""
    return tmp_path_factory.mktemp("import-linter")


@pytest.fixture
def tree(tmp_path):
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, tmp_path / package, True, shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def test_neither_the_core_nor_commands_nor_pages_load_a_training_library():
    scripts = {"exgrpo.app.main"}
    modules = [
        name for name in modules_of("app") if name not in scripts and not name.startswith("exgrpo.app.app_pages.")
    ]
    assert "exgrpo.app.components.new_run.form_check" in modules
    assert training_libraries_loaded_by([*TORCH_FREE_MODULES, *modules]) == []


def test_a_loaded_training_library_is_noticed():
    assert training_libraries_loaded_by(["exgrpo_core.policy_optimization.objective"]) == ["torch"]


def test_the_tree_keeps_every_contract(cache):
    finished = lint_imports(REPOSITORY, cache)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.parametrize(
    ("file", "planted", "contract"),
    [
        ("exgrpo_core/types.py", "import exgrpo.jobs.runs.control", "Layers: app"),
        ("jobs/runs/control.py", "def look():\n    import exgrpo.jobs.runs.state", "No circles"),
        (
            "app/components/__init__.py",
            "import exgrpo.db.connections.opening",
            "Reads: in the UI only exgrpo.app.queries",
        ),
    ],
)
def test_a_planted_violation_breaks_its_contract(tree, cache, file, planted, contract):
    with (tree / file).open("a", encoding="utf-8") as stream:
        stream.write(f"\n{planted}\n")
    finished = lint_imports(tree, cache)
    broken = [line for line in finished.stdout.splitlines() if " BROKEN" in line]
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert any(line.startswith(contract) for line in broken), broken
