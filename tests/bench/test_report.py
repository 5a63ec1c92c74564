import json

import pytest

from bench.report import meets, report

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("figure", "target", "expected"),
    [
        (3.0, ">= 3.0", True), (2.9, ">= 3.0", False), (8, "<= 8.0", True), (8.1, "<= 8.0", False), (1, "> 0", True),
        (0, "> 0", False), (0.5, "< 0.5", False), (True, "== 1", True), (float("nan"), "<= 8.0", False),
        (float("inf"), ">= 3.0", False), (None, "<= 8.0", False), ("fast", "<= 8.0", False),
    ],
)  # fmt: skip
def test_figure_meets_its_target(figure, target, expected):
    assert meets(figure, target) is expected


def test_last_line_is_json_and_names_figures_targets_and_whether_they_were_met(capsys):
    assert report("demo", {"step_ms": 1.23456789, "mode": "short"}, {"step_ms": "<= 8.0"})
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["figures"].pop("load_average") >= 0
    assert line["figures"].pop("commit")
    assert line == {
        "bench": "demo",
        "figures": {"step_ms": 1.23457, "mode": "short"},
        "targets": {"step_ms": "<= 8.0"},
        "met": True,
    }


def test_missed_target_is_said_and_a_figure_that_is_no_number_becomes_null(capsys):
    assert not report("demo", {"step_ms": 9.0, "ratio": float("nan")}, {"step_ms": "<= 8.0"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "missed: step_ms = 9.0, target <= 8.0"
    figures = json.loads(lines[-1])["figures"]
    assert (figures["step_ms"], figures["ratio"]) == (9.0, None)
