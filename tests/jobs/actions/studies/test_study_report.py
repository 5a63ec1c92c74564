import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.studies.comparison import mean_text, reading
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, load_study, study_names, wanted_keys
from exgrpo.jobs.actions.studies.study_report import render_report
from exgrpo.jobs.actions.studies.study_results import StudyResults, find_runs, read_results
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.actions.studies.recorded import record_run, record_seeds

pytestmark = pytest.mark.slow


class Outline(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if data.strip() and self.tags[-1][0] not in {"script", "style"}:
            self.texts.append(data.strip())


def key(cell: str, seed: int) -> RunKey:
    return RunKey("ablations", Scale.CHAINS, cell, seed)


def record(runs_root: Path, **counts: tuple[int, ...]) -> None:
    for cell, of_seeds in counts.items():
        record_seeds(runs_root, "ablations", cell.replace("_", "-"), *of_seeds)


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    record(root, on_policy=(4, 5, 6), exgrpo=(7, 8, 8))
    record_run(root, load_study("ablations"), key("rho-25", 0), 9, RunStatus.FAILED)
    return root


def read(runs_root: Path, name: str = "ablations", num_seeds: int = 3) -> StudyResults:
    study = load_study(name)
    with open_fresh_index(runs_root, None) as database:
        return read_results(database, study, Scale.CHAINS, wanted_keys(study, Scale.CHAINS, study.cells, num_seeds))


def text_of(results: StudyResults, num_runs: int = 30) -> str:
    return " ".join(Outline(render_report(results, num_runs)).texts)


def test_figures_are_means_over_the_seeds_of_a_cell_and_differences_are_paired_by_seed(runs_root):
    results = read(runs_root)
    on_policy, exgrpo = results.cells[:2]
    assert results.main_figure == "Held-out Avg@8 (%)"
    assert on_policy.figures["Held-out Avg@8 (%)"].values == (40.0, 50.0, 60.0)
    assert exgrpo.figures["Held-out Avg@8 (%)"].mean == pytest.approx(230 / 3)
    assert {step: value.mean for step, value in on_policy.curve.items()} == {0: 40.0, 30: 50.0}
    assert mean_text(on_policy.figures["Held-out Avg@8 (%)"]) == "50.0 \N{PLUS-MINUS SIGN} 24.8"
    assert mean_text(exgrpo.figures["Held-out Avg@8 (%)"]._replace(mean=99.0, half=12.7)) == "99.0 (86.3 to 100.0)"
    difference = results.difference(exgrpo)
    assert difference.values == (30.0, 30.0, 20.0)
    assert difference.mean == pytest.approx(80 / 3)
    assert difference.half == pytest.approx(4.302653 * 10 / 3, rel=1e-5)
    assert results.difference(on_policy) is None


def test_an_archived_run_and_one_whose_settings_cannot_be_read_do_not_count(tmp_path):
    [old], [new] = (record_seeds(tmp_path, "ablations", "rho-75", count) for count in (3, 5))
    assert _run_of(tmp_path, key("rho-75", 0)).run_id == new
    run_actions.archive(tmp_path, new)
    assert _run_of(tmp_path, key("rho-75", 0)).run_id == old
    damaged = tmp_path / "damaged"
    [run_id] = record_seeds(damaged, "ablations", "rho-75", 3)
    (damaged / run_id / "spec.json").write_text("{")
    results = read(damaged)
    assert not [cell for cell in results.cells if cell.seeds]
    assert "rho-75" in text_of(results)


def test_a_cell_with_the_same_difference_at_every_seed_is_named_and_not_compared(tmp_path):
    record(tmp_path, on_policy=(8, 9, 8), exgrpo=(3, 4, 3), rho_25=(7, 8, 9))
    text = reading(read(tmp_path))
    assert text.startswith("exgrpo: the same difference at every seed")
    assert "Not distinguishable from it: rho-25." in text
    assert "cells compared: 1" in text


def test_a_difference_that_chance_explains_among_several_is_not_said_to_be_real(tmp_path):
    record(tmp_path, on_policy=(5, 5, 5, 5), exgrpo=(6, 7, 7, 8))
    record(tmp_path, without_shaping=(5, 4, 5, 6), rho_25=(4, 5, 6, 5), rho_75=(6, 5, 4, 5))
    results = read(tmp_path)
    difference = results.difference(results.cells[1])
    assert difference.mean - difference.half > 0
    assert 0.05 / 4 < difference.p_value < 0.05
    text = text_of(results)
    assert "Higher" not in text
    assert "with Holm's correction (cells compared: 4)" in text


def test_cells_with_the_runs_of_another_are_named_and_no_comparisons(tmp_path):
    record(tmp_path, on_policy=(4, 5, 6), on_policy_retire=(4, 5, 6), exgrpo=(6, 6, 7), redraw=(6, 6, 7))
    record(tmp_path, rho_25=(5, 6, 6))
    text = reading(read(tmp_path))
    assert text.startswith("redraw: the same runs as exgrpo. on-policy-retire: the same runs as on-policy. ")
    assert "Not distinguishable from it: exgrpo, rho-25." in text
    assert "with Holm's correction (cells compared: 2)" in text


def test_a_cell_with_a_baseline_of_its_own_is_compared_with_that(tmp_path):
    for cell, num_correct in (("on-policy", 9), ("harder-on-policy", 4), ("harder-exgrpo", 6)):
        record_seeds(tmp_path, "model-extension", cell, num_correct)
    results = read(tmp_path, "model-extension")
    values = {item.cell.name: results.difference(item) for item in results.cells if item.seeds}
    assert values["harder-exgrpo"].mean == pytest.approx(20.0)
    assert values["harder-on-policy"] is None


def test_every_study_has_a_page_before_anything_ran(tmp_path):
    with open_fresh_index(tmp_path, None) as database:
        for study in map(load_study, study_names()):
            keys = wanted_keys(study, Scale.CHAINS, study.cells, 1)
            text = text_of(read_results(database, study, Scale.CHAINS, keys))
            assert "No run has finished yet." in text, study.name
            assert "What was not run" in text, study.name


def test_the_page_loads_nothing_and_runs_only_its_two_scripts(runs_root):
    page = render_report(read(runs_root), 30)
    outline = Outline(page)
    assert {tag for tag, _ in outline.tags} & {"link", "img", "iframe", "object", "base", "form"} == set()
    names = {name for _, attributes in outline.tags for name in attributes}
    assert not [name for name in names if name in {"src", "href"} or name.startswith("on")]
    scripts = [script.encode() for script in re.findall(r"<script>(.*?)</script>", page, re.DOTALL)]
    hashes = " ".join(f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    assert len(scripts) == 2
    policies = [attributes["content"] for tag, attributes in outline.tags if "http-equiv" in attributes]
    assert policies == [f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}"]


def test_text_of_a_run_comes_out_as_text(runs_root):
    results = read(runs_root)
    hostile = "<img src=x onerror=alert(1)>&amp;"
    cell = results.cells[1]
    cell.seeds[0].spec["model"]["source"] = hostile
    cell = replace(cell, cell=cell.cell.model_copy(update={"name": f"{hostile}</script>"}))
    page = render_report(replace(results, cells=(results.cells[0], cell)), 30)
    outline = Outline(page)
    assert any(hostile in text for text in outline.texts)
    assert hostile not in page
    assert "img" not in {tag for tag, _ in outline.tags}


def _run_of(runs_root: Path, wanted: RunKey) -> RunRow:
    with open_fresh_index(runs_root, None) as database:
        return find_runs(database, load_study("ablations"))[wanted]


def test_the_document_s_figures_are_those_of_its_file(repository):
    results = json.loads((repository / "docs" / "studies" / "ablations-chains.json").read_text(encoding="utf-8"))
    text = " ".join((repository / "docs" / "results.md").read_text(encoding="utf-8").split())
    scores = {cell: figures["Held-out Avg@8 (%)"] for cell, figures in results["figures"].items()}
    for cell, score in scores.items():
        assert re.search(rf"\| {cell} \|[^|]+\| {score['mean']:.1f} ± {score['half']:.1f} \|", text)
    largest = max(abs(score["mean"] - scores["on-policy"]["mean"]) for score in scores.values())
    assert f"by more than {largest:.1f} points" in text


def test_the_document_s_figures_of_the_methods_are_those_of_its_file(repository):
    results = json.loads((repository / "docs" / "studies" / "methods-chains.json").read_text(encoding="utf-8"))
    text = (repository / "docs" / "results.md").read_text(encoding="utf-8")
    names = ("Held-out Avg@8 (%)", "Steps", "Replayed tokens (%)", "Peak of the buffer (trajectories)")
    baseline = np.array(results["figures"]["on-policy"][names[0]]["values"])
    for cell, figures in results["figures"].items():
        score, *others = (figures[name] for name in names)
        differences = np.array(score["values"]) - baseline
        half = stats.t.ppf(0.975, 4) * differences.std(ddof=1) / 5**0.5
        difference = "0 (baseline)" if cell == "on-policy" else f"{differences.mean():+.1f} ± {half:.1f}"
        counts = " | ".join(f"{other['mean']:,.0f}" for other in others)
        assert f"| {cell} | {score['mean']:.1f} ± {score['half']:.1f} | {difference} | {counts} |" in text
