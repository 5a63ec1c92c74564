"""Code has a caller: what nothing of the packages names was forgotten where it belongs, or is left over."""

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from exgrpo.app.components.new_run.field_shapes import attribute_docs
from exgrpo.db.queries.retirement import BUILT_IN_TASKS
from exgrpo.jobs.evaluation.judging import oracles
from exgrpo.jobs.specs.base import Spec
from exgrpo.jobs.specs.train import ORACLE_SOURCES
from exgrpo.jobs.tasks.grading.rewards import TASKS
from exgrpo_core.config import ExGRPOConfig
from tests.house.tracked import PACKAGES, read, source_files, tracked_files

FOUND_BY_NAME = Path("exgrpo_core/strategies")
"""Classes there have callers by what specifications call them."""
WORD = re.compile(r"\w+")
ADVICE = "is named nowhere else: CONTRIBUTING.md, How to add, says where to choose it; or remove it."


def public_names(source):
    """Return the public functions and classes at the top of a module.

    A decorator hands its function over itself, but for the one that checks roles.
    """
    kinds = (ast.FunctionDef, ast.ClassDef)
    tops = [node for node in ast.parse(source).body if isinstance(node, kinds) and not node.name.startswith("_")]
    return [node.name for node in tops if all(ast.unparse(one).startswith("needs(") for one in node.decorator_list)]


def without_caller(sources, others):
    """Return the public names that stand once in their module, next to its name in no other, and in no other text."""
    counts = {path: Counter(WORD.findall(source)) for path, source in sources.items()}
    elsewhere = set(WORD.findall(others))
    return [
        f"{path}: {name}"
        for path, source in sources.items()
        if path.parts[0] in PACKAGES and path.parent != FOUND_BY_NAME
        for name in public_names(source)
        if counts[path][name] == 1 and name not in elsewhere
        for module in [path.parent.name if path.name == "__init__.py" else path.stem]
        if not any({name, module} <= counts[other].keys() for other in sources if other != path)
    ]


def test_every_public_function_and_class_has_a_caller():
    configuration = [path for path in tracked_files() if path.suffix in {".toml", ".yaml"} or path.name == "Makefile"]
    left_over = without_caller({path: read(path) for path in source_files()}, "\n".join(map(read, configuration)))
    assert not left_over, f"{', '.join(left_over)} {ADVICE}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def forgotten(): ...", ["jobs/a.py: forgotten"]),
        ("def _private(): ...", []),
        ("@command\ndef given(): ...", []),
    ],
)
def test_what_nothing_names_is_found(source, expected):
    assert without_caller({Path("jobs/a.py"): source, Path("jobs/b.py"): "other()"}, "") == expected
    assert (
        without_caller({Path("jobs/a.py"): source, Path("jobs/b.py"): "from exgrpo.jobs.a import forgotten"}, "") == []
    )


def test_new_python_is_checked_before_git_tracks_it(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in (".gitignore", "new.py", "ignored.py", "model.gguf"):
        (tmp_path / name).write_text("ignored.py")
    assert tracked_files(tmp_path) == (Path("new.py"),)


def test_every_task_that_offers_an_oracle_has_one():
    places = "ORACLE_SOURCES of jobs/specs/train.py, ORACLES of oracles.py, BUILT_IN_TASKS of db/queries/retirement.py"
    assert set(oracles.ORACLES) == ORACLE_SOURCES == BUILT_IN_TASKS, places
    assert set(TASKS) >= ORACLE_SOURCES, "TASKS of jobs/tasks/grading/rewards.py"


def test_every_field_of_a_specification_says_what_it_is():
    """The form shows it; sections and a job's kind, tags and seeds need no words."""
    undescribed = [
        f"{cls.__name__}.{name}"
        for cls in every_spec(Spec)
        if cls.__module__.startswith("exgrpo.jobs.specs")
        for name, field in cls.model_fields.items()
        if name in cls.__annotations__ and name not in {"kind", "tags", "seed"}
        if not attribute_docs(cls).get(name)
        and not (isinstance(field.annotation, type) and issubclass(field.annotation, Spec | ExGRPOConfig))
    ]
    assert undescribed == [], "jobs/specs: write below each field what it is."


def every_spec(cls):
    return [found for child in cls.__subclasses__() for found in (child, *every_spec(child))]
