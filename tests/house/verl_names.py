"""The table of verl's names, docs/verl-names.csv, and what the plug-in's source imports and calls of verl."""

import ast
import csv
from dataclasses import dataclass

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "exgrpo_core" / "verl_plugin"
TABLE = REPOSITORY / "docs" / "verl-names.csv"


@dataclass(frozen=True)
class Use:
    name: str
    members: tuple[str, ...]
    how: str


def table():
    with TABLE.open() as file:
        return [Use(row["name"], tuple(row["members"].split()), row["how"]) for row in csv.DictReader(file)]


def sources():
    return {path: ast.parse(path.read_text()) for path in FOLDER.glob("*.py")}


def imported(tree):
    """Return verl's names that a module imports, by the names that it gives them."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "verl":
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name: alias.name for alias in node.names if alias.name.partition(".")[0] == "verl"}
    return found


def awaited(tree):
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    hooks = [call for call in calls if getattr(call.func, "id", "") == "register_post_import_hook"]
    return {call.args[1].value for call in hooks if isinstance(call.args[1], ast.Constant)}


def calls():
    """Yield each call of an imported name: verl's name, how many positional arguments, the named ones, whether more."""
    for tree in sources().values():
        names = imported(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                keywords = {keyword.arg for keyword in node.keywords if keyword.arg}
                has_more = any(keyword.arg is None for keyword in node.keywords)
                yield names[node.func.id], len(node.args), keywords, has_more
