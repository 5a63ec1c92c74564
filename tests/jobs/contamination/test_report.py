import json
import re
from dataclasses import asdict, replace

import pytest
from scipy import stats

from db.statistics.differences import binomial_tail
from exgrpo_core.bounded_json import seal
from exgrpo_core.faults import Fault, FaultKind
from jobs.cli.evaluate import _without_signs
from jobs.contamination.report import ContaminationReport, ModelProbe, read_reports, write_report

CLEAN = ModelProbe(num_compared=24, num_completed=1, num_completed_changed=1, num_likeliest=3, num_versions=9)
REPORT = ContaminationReport("model", "mine", "2026-01-01T00:00:00+00:00", 30, None, 0, CLEAN)


@pytest.mark.parametrize(
    ("hits", "tries", "chance"),
    [(0, 0, 0.5), (2, 2, 0.5), (1, 2, 0.5), (0, 5, 0.1), (1300, 12_000, 0.1), (12_000, 12_000, 0.1)],
)
def test_the_binomial_tail_is_that_of_scipy(hits, tries, chance):
    assert binomial_tail(hits, tries, chance) == pytest.approx(stats.binom.sf(hits - 1, tries, chance), rel=1e-6)


def test_a_report_that_compared_nothing_tested_nothing():
    assert REPORT.signs() == []
    nothing = replace(CLEAN, num_compared=0, num_completed=0, num_completed_changed=0, num_likeliest=0)
    assert REPORT.was_tested
    assert not replace(REPORT, probe=nothing).was_tested
    assert replace(REPORT, probe=nothing, training_data="train.jsonl").was_tested
    assert "in 24 questions" in _without_signs(REPORT)
    assert "in 30 questions" in _without_signs(replace(REPORT, training_data="train.jsonl"))


@pytest.mark.parametrize(
    ("change", "figures"),
    [
        ({"num_overlapping": 2, "training_data": "train.jsonl"}, "2 of 30 .* train.jsonl"),
        ({"probe": replace(CLEAN, num_completed=12)}, "12 of 24 .* 1 "),
        ({"probe": replace(CLEAN, num_likeliest=20)}, "20 of 24 .* 9 "),
    ],
)
def test_each_probe_has_a_sentence(change, figures):
    (sign,) = replace(REPORT, **change).signs()
    assert re.search(figures, sign)


def test_reports_come_back_newest_first_and_what_is_none_is_named(tmp_path):
    assert read_reports(tmp_path) == ([], [])
    path = write_report(tmp_path, REPORT)
    write_report(tmp_path, replace(REPORT, num_questions=31))
    changed = path.read_text(encoding="utf-8").replace("30", "39")
    for name, content in (("z.json", "[" * 200_000), ("y.json", "{}"), ("x.json", '{"probe": 3}'), ("w.json", changed)):
        (path.parent / name).write_text(content, encoding="utf-8")
    reports, faults = read_reports(tmp_path)
    assert [report.num_questions for report in reports] == [31, 30]
    assert faults == [Fault(FaultKind.CHANGED, f"workbench/contamination/{name}.json") for name in "zyxw"]


@pytest.mark.parametrize(
    "change",
    [
        {"model": 5}, {"benchmark": None}, {"made_at": {}}, {"num_questions": 0, "training_data": "x"},
        {"num_overlapping": "x"}, {"probe": {"num_compared": 2**33}}, {"probe": {"num_completed": -1}},
        {"probe": {"num_likeliest": None}}, {"probe": {"num_versions": 0}}, {"probe": {"num_compared": 1.5}},
    ],
)  # fmt: skip
def test_a_restored_report_of_another_shape_is_named_and_keeps_no_page_from_opening(tmp_path, change):
    path = write_report(tmp_path, REPORT)
    content = asdict(REPORT)
    changed = content | change | {"probe": content["probe"] | change.get("probe", {})}
    path.write_bytes(seal(json.dumps(changed).encode()))
    reports, [fault] = read_reports(tmp_path)
    assert reports == []
    assert fault == Fault(FaultKind.CHANGED, f"workbench/contamination/{path.name}")
