"""Print the test files that a change can break, found by the import graph.

Run `python -m tests.changed`, with `--base REV` for all that has changed since REV. For each changed module these are
the tests that import it, in the nearest ring of importers that has any, and the tests in the same place below `tests`;
for a file of data the tests that name it.
The oracle of pages, tests/numbers, belongs to each change of `app` or `db`, the tests of Algorithm 1 to each change of
`exgrpo_core`, and tests/house to every change.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
LINKED = ("app", "jobs", "db")
"""Folders that are packages of `exgrpo`, by links."""
PACKAGES = (*LINKED, "exgrpo", "exgrpo_core", "bench")
ALWAYS = "tests/house"
ORACLE = "tests/numbers"
ALGORITHM = "tests/exgrpo_core/test_algorithm.py"
OF_PACKAGE = {"app": ORACLE, "db": ORACLE, "exgrpo_core": ALGORITHM}


def changed_files(base):
    """Files below the root that differ from a revision, files that git does not track included."""
    listed = [["git", "diff", "--name-only", base], ["git", "ls-files", "--others", "--exclude-standard"]]
    answers = [subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout for words in listed]
    return sorted({Path(line) for answer in answers for line in answer.splitlines()})


class ImportGraph:
    """Who imports whom, in packages and tests."""

    def __init__(self):
        self._graph = grimp.build_graph(
            "exgrpo", "exgrpo_core", "bench", "tests", exclude_type_checking_imports=False, cache_dir=None
        )

    def nearest_tests(self, module):
        """Test modules in the nearest ring of importers that has any; what helps tests passes on to its importers."""
        ring, seen = {module}, {module}
        while ring:
            importers = {name for of in ring for name in self._importers(of)} - seen
            seen |= importers
            tests = {test for name in importers if name.startswith("tests.") for test in self._tests_by(name)}
            if tests:
                return tests
            ring = importers
        return set()

    def tests_by(self, helper):
        """Test modules that are or use a module of tests."""
        return self._tests_by(helper)

    def _importers(self, module):
        return self._graph.find_modules_that_directly_import(module) if module in self._graph.modules else set()

    def _tests_by(self, helper):
        users, todo = {helper}, [helper]
        while todo:
            new = self._importers(todo.pop()) - users
            users |= new
            todo += new
        return {name for name in users if name.rpartition(".")[2].startswith("test_")}


def pick_tests(changed, graph):
    """Paths of test files and folders for changed files."""
    picked = {ALWAYS} if changed else set()
    for path in changed:
        package = ("exgrpo",) if path.parts[0] in LINKED else ()
        module = ".".join((*package, *path.with_suffix("").parts)).removesuffix(".__init__")
        if path.parts[0] == "tests":
            modules = graph.tests_by(module) if path.suffix == ".py" else set()
            picked |= {path.parent.as_posix()} if path.stem == "conftest" else _paths(modules) or _place(path)
        elif path.parts[0] in PACKAGES:
            picked |= _paths(graph.nearest_tests(module)) if path.suffix == ".py" else _naming(path.stem)
            picked |= _place("tests" / path)
            picked |= {OF_PACKAGE.get(path.parts[0], ALWAYS)}
    return {name for name in picked if (ROOT / name).exists()}


def _paths(modules):
    return {f"{name.replace('.', '/')}.py" for name in modules}


def _naming(word):
    """Test files that name a file of data, such as a preset."""
    found = subprocess.run(
        ["git", "grep", "-lF", word, "--", "tests/**/test_*.py"], cwd=ROOT, capture_output=True, text=True
    )
    return set(found.stdout.splitlines())


def _place(path):
    """Tests named as a file is in the folder that mirrors its own, else all of the nearest folder that exists."""
    folder = next(parent for parent in path.parents if (ROOT / parent).is_dir())
    named = {found.relative_to(ROOT).as_posix() for found in (ROOT / folder).glob(f"test_{path.stem}*.py")}
    if named or folder.as_posix() in ("tests", *(f"tests/{package}" for package in PACKAGES)):
        return named
    return {folder.as_posix()}


def main():
    """Print a path a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD", metavar="REV", help="what counts as changed is all since it")
    changed = changed_files(parser.parse_args().base)
    sys.stdout.writelines(f"{path}\n" for path in sorted(pick_tests(changed, ImportGraph()) if changed else ()))


if __name__ == "__main__":
    main()
