"""The runner and the page of the study `crossover`, on the smallest runs and on made-up lines."""

import pytest

from bench import crossover, crossover_report
from bench.crossover import START, Budget, append, read_lines, run_cell
from jobs.studies.definition import load_study
from jobs.training import run_data
from jobs.training.warm_start import WarmStartSettings, warm_model


@pytest.fixture
def tiny_model(tmp_path, monkeypatch):
    settings = WarmStartSettings(num_layers=1, width=16, num_heads=2, num_steps=3, modulus=100)
    monkeypatch.setattr(run_data, "_warm_chains_model", lambda *_: warm_model(settings, tmp_path))


@pytest.mark.usefixtures("tiny_model")
def test_a_run_ends_at_its_rollouts_and_is_kept_as_a_line(tmp_path):
    study, budget = load_study("crossover"), Budget(num_rollouts=200, num_held_out=3, num_samples=4)
    outcome = run_cell(study, "exgrpo", "e3", "k8-n64", 4, budget)
    assert (outcome.steps, outcome.warm_seed, len(outcome.num_correct)) == (2, 1, 3)
    assert 200 <= outcome.fresh_rollouts <= 256
    assert len(outcome.fresh_pass_rates) == 2
    append(tmp_path / "runs.jsonl", outcome)
    append(tmp_path / "runs.jsonl", run_cell(study, START, "e3", "k8-n64", 1, budget))
    lines = read_lines(tmp_path / "runs.jsonl")
    assert [(line["method"], line["seed"], line["steps"]) for line in lines] == [("exgrpo", 4, 2), (START, 1, 0)]


def line(method, seed, num_correct, rest="k8-n64"):
    outcome = crossover.Outcome(method, "e3", rest, seed, seed % 3, [num_correct] * 2, 10, 5, 640, 1000)
    return {name: getattr(outcome, name) for name in crossover.Outcome.__slots__}


LINES = [line(START, seed, 1) for seed in range(3)]
LINES += [line("on-policy", seed, 3) for seed in range(6)]
LINES += [line("redraw", seed, 5 + seed % 2) for seed in range(5)]


def test_a_method_is_compared_with_the_baseline_over_the_seeds_of_both():
    (item,) = crossover_report.compare(LINES)
    assert (item.method, len(item.lines)) == ("redraw", 5)
    assert item.start == pytest.approx(10.0)
    assert item.difference.values == pytest.approx((20.0, 30.0, 20.0, 30.0, 20.0))
    assert item.improvement == 1.0
    middle, low, high = item.robust
    assert middle == pytest.approx(70 / 3)
    assert 19.99 < low <= middle <= high < 30.01


def test_runs_of_another_k_or_number_of_questions_are_compared_among_themselves():
    others = [line(START, 0, 1, "k4-n512"), *(line("on-policy", seed, 2, "k4-n512") for seed in range(2))]
    others += [line("redraw", seed, 2, "k4-n512") for seed in range(2)]
    first, second = crossover_report.compare(others + LINES)
    assert (first.rest, first.difference.mean) == ("k8-n64", pytest.approx(24.0))
    assert (second.rest, second.difference.mean) == ("k4-n512", pytest.approx(0.0))


def test_the_table_names_the_methods_and_corrects_for_their_number():
    (row,) = crossover_report.differences_table(crossover_report.compare(LINES)).to_dict("records")
    assert (row["k_and_questions"], row["method"], row["num_runs"]) == ("8, 64", "redraw", 5)
    assert [round(row[name], 1) for name in ("end", "difference", "half_interval", "iqm")] == [54.0, 24.0, 6.8, 23.3]
    few = crossover_report.compare([item for item in LINES if item["seed"] < 3])
    (row,) = crossover_report.differences_table(few).to_dict("records")
    assert row["iqm"] is None
    assert row["probability_better"] == 1.0
