"""`exgrpo-core`, which users of verl install without the workbench, is the core of this checkout."""

import tomllib
from pathlib import Path

import pytest

from tests.house.tracked import read, source_files

CORE = tomllib.loads(read(Path("exgrpo_core/pyproject.toml")))
MAIN = tomllib.loads(read(Path("pyproject.toml")))


def test_it_has_every_package_of_the_core():
    packages = {".".join(path.parent.parts) for path in source_files() if path.parts[0] == "exgrpo_core"}
    assert CORE["tool"]["setuptools"]["packages"] == sorted(packages)


@pytest.mark.parametrize("name", ["version", "license", "requires-python"])
def test_it_agrees_with_the_workbenchs_distribution(name):
    assert CORE["project"][name] == MAIN["project"][name]


def test_both_make_the_plug_in_known_to_verl():
    assert CORE["project"]["entry-points"] == MAIN["project"]["entry-points"]


def test_its_pairing_for_gpus_is_the_workbenchs():
    pins = {line for line in read(Path("requirements/constraints-verl-gpu.txt")).splitlines() if "==" in line}
    asked = {text.replace("[default]", "") for text in CORE["project"]["optional-dependencies"]["verl"]}
    assert {text for text in asked if "==" in text} == pins - {"math-verify==0.9.0"}  # no grader comes with it
