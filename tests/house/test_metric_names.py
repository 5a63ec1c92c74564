"""Metric keys are declared in one place: every `area/name` in the code is one of `step_report.METRICS`."""

import ast
import re
from pathlib import Path

import pytest

from exgrpo_core.step_report import METRIC_LABELS, METRICS, SHARES
from tests.house.tracked import read, source_files

AREAS = {name.split("/")[0] for name in METRICS}
METRIC_KEY = re.compile(rf"({'|'.join(sorted(AREAS))})/[a-z0-9_]*")


def is_metrics_key(node):
    return isinstance(node, ast.Subscript) and getattr(node.value, "id", getattr(node.value, "attr", "")) == "metrics"


def metric_keys(source):
    """Yield (line, key, is_whole) of each string that reads as a metric key; the start of one is not whole."""
    nodes = list(ast.walk(ast.parse(source)))
    starts = {id(node.values[0]) for node in nodes if isinstance(node, ast.JoinedStr) and node.values}
    subscripts = {id(node.slice) for node in nodes if is_metrics_key(node)}
    for node in nodes:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if METRIC_KEY.fullmatch(node.value) or id(node) in subscripts:
            yield node.lineno, node.value, id(node) not in starts and not node.value.endswith("/")


def undeclared(source):
    return [
        (line, key)
        for line, key, is_whole in metric_keys(source)
        if not (key in METRICS if is_whole else any(name.startswith(key) for name in METRICS))
    ]


def test_every_metric_key_in_the_code_is_declared():
    found = {str(path): keys for path in source_files() if (keys := undeclared(read(Path(path))))}
    assert not found, f"METRICS of exgrpo_core/step_report.py: declare {found}."


def test_every_declared_metric_is_written_by_some_code():
    keys = [key for path in source_files() if path.name != "step_report.py" for _, key, _ in metric_keys(read(path))]
    assert [name for name in METRICS if not any(name.startswith(key) for key in keys)] == []


def test_every_metric_has_a_label_of_its_own():
    assert len(set(METRIC_LABELS.values())) == len(METRICS)


def test_every_metric_called_a_share_is_shown_as_one():
    called = {key for key in METRICS if key.endswith(("_share", "/share"))}
    assert called <= SHARES, f"SHARES of exgrpo_core/step_report.py: add {called - SHARES}."


def test_metric_names_are_area_and_snake_case_name():
    assert [name for name in METRICS if not re.fullmatch(r"[a-z]+/[a-z][a-z0-9_]*", name)] == []


@pytest.mark.parametrize("line", ['metrics["reward/meen"] = 1.0', 'metrics["grad/norm"]', 'x = f"reward/z{name}"'])
def test_an_undeclared_key_is_found(line):
    assert undeclared(line)
