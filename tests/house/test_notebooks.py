"""The notebooks of the documents run from top to bottom, and each cell gives the value that is stored under it."""

import ast
import json
import os
import sys

import pytest

from tests.house.tracked import REPOSITORY

FOLDER = REPOSITORY / "docs" / "notebooks"


def value_of(cell, names):
    """Run a cell as Jupyter does: its value is that of a last expression."""
    *body, last = ast.parse("".join(cell["source"])).body
    is_value = isinstance(last, ast.Expr)
    exec(compile(ast.Module(body if is_value else [*body, last], []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if is_value else None
    return "" if value is None else repr(value)


@pytest.mark.parametrize(
    "name", ["look-at-rollouts", pytest.param("write-a-method", marks=pytest.mark.slow)]
)  # the second one trains
def test_notebook_runs_and_its_outputs_are_those_stored(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    names = {"__name__": "__main__"}
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    for cell in [cell for cell in cells if cell["cell_type"] == "code"]:
        stored = "".join("".join(output["data"]["text/plain"]) for output in cell["outputs"])
        assert value_of(cell, names) == stored, "".join(cell["source"])


def test_every_notebook_is_run():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {"look-at-rollouts", "write-a-method"}
