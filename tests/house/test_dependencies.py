"""What the packages import is what pyproject.toml asks for."""

import ast
import re
import tomllib
from importlib.metadata import packages_distributions

import pytest

from deploy.licences import normal
from tests.house.tracked import PACKAGES, read, source_files

OF_ANOTHER = {"pydantic-core": "pydantic"}
"""Distributions that belong to a declared one and are pinned by it."""


def imported_modules(source):
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def undeclared(modules):
    distributions = packages_distributions()
    names = {normal(name) for module in modules - set(PACKAGES) for name in distributions.get(module, [])}
    return {name for name in names if OF_ANOTHER.get(name, name) not in declared()}


def declared():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return {normal(re.match(r"[\w.-]+", requirement)[0]) for group in groups for requirement in group}


def test_every_imported_package_is_a_dependency_of_its_own():
    modules = {name for path in source_files() if path.parts[0] in PACKAGES for name in imported_modules(read(path))}
    assert undeclared(modules) == set()


@pytest.mark.parametrize("line", ["import certifi", "from idna import core"])
def test_an_import_of_what_only_others_ask_for_is_noticed(line):
    assert undeclared(imported_modules(line))
