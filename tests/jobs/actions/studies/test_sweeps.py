import json

import pytest

from exgrpo.jobs.actions.studies import sweeps
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, spec_of, wanted_keys
from exgrpo.jobs.actions.studies.study_report import render_report
from exgrpo.jobs.actions.studies.study_results import read_results
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.specs.base import SpecError
from exgrpo.jobs.specs.train import load_preset, merge_settings
from tests.jobs.cli.invoked import exgrpo, printed_json

BASE = {"base": "chains-exgrpo", "over": {"num_steps": [2], "optim.learning_rate": ["1e-4", 2e-4], "seed": [3, 5]}}


@pytest.fixture
def write(tmp_path):
    def written(**changes):
        path = tmp_path / "rates.yaml"
        path.write_text(json.dumps(BASE | changes), encoding="utf-8")
        return path

    return written


def test_a_sweep_is_a_study_of_every_combination_with_the_listed_seeds(write):
    study = sweeps.sweep_of_file(write())
    assert [cell.name for cell in study.cells] == ["learning-rate-1e-4", "learning-rate-0.0002"]
    keys = wanted_keys(study, Scale.OWN, study.cells, None)
    assert keys == [RunKey("rates", Scale.OWN, cell.name, seed) for seed in (3, 5) for cell in study.cells]
    assert [key.seed for key in wanted_keys(study, Scale.OWN, study.cells[:1], 4)] == [3, 5, 0, 1]
    assert [key.seed for key in wanted_keys(study, Scale.OWN, study.cells[:1], 1)] == [3]
    spec = spec_of(study, keys[-1])
    assert (spec.num_steps, spec.optim.learning_rate, spec.seed, spec.algorithm.seed) == (2, 2e-4, 5, 5)
    assert spec.preset == "chains-exgrpo"
    assert set(keys[-1].tags) == set(spec.tags)


def test_names_are_made_plain_and_fields_have_the_names_that_pages_show(write):
    over = {"mu": [0.25, 0.75], "Number of steps": [2]}
    study = sweeps.sweep_of_file(write(name="Mu sweep!", over=over))
    assert (study.name, study.title) == ("mu-sweep", "Sweep mu-sweep")
    changes = [cell.own.changes for cell in study.cells]
    assert [(fields["algorithm"]["bucket_center"], fields["num_steps"]) for fields in changes] == [(0.25, 2), (0.75, 2)]


def test_a_sweep_has_a_report(write, tmp_path):
    study = sweeps.sweep_of_file(write())
    with open_fresh_index(tmp_path, None) as database:
        page = render_report(read_results(database, study, Scale.OWN, []), 4)
    assert "All combinations of listed values of fields." in page


@pytest.mark.parametrize(("values", "baseline"), [([0.25, 0.5, 0.75], 0.5), ([0.75, 0.25], 0.75)])
def test_differences_are_to_the_value_of_the_base_and_without_it_to_the_first(write, values, baseline):
    over = {"algorithm.bucket_center": values, "num_steps": [2]}
    study = sweeps.sweep_of_file(write(over=over))
    assert study.baseline == f"bucket-center-{baseline}"
    assert study.question == "What do values of algorithm.bucket_center change?"


def test_a_base_is_a_preset_a_file_or_fields(write, tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: chains-exgrpo\nnum_steps: 9\n", encoding="utf-8")
    over = {"seed": [1]}
    for base in ("mine.yaml", {"num_steps": 9, "algorithm": {"batch_size": 4, "mini_batch_size": 2}}):
        (cell,) = sweeps.sweep_of_file(write(base=base, over=over)).cells
        assert (cell.name, cell.own.changes["num_steps"]) == ("base", 9)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"over": {"optim.learning_rat": [1e-4]}}, "optim.learning_rate"),
        ({"over": {"optim.learning_rate": [1e-4, -1]}}, "optim.learning_rate"),
        ({"over": {"lr": [1e-4], "Learning rate": [2e-4]}}, "each field once"),
        ({"name": "???"}, "lowercase letters, digits, dots and hyphens"),
        ({"over": {"optim.learning_rate": []}}, "over.optim.learning_rate"), ({"over": {"seed": ["x"]}}, "seed"),
        ({"over": {"seed": list(range(sweeps.MAX_RUNS + 1))}}, "over"), ({"over": {}}, "over"),
        ({"base": "chains-exgrp"}, "base"), ({"over": {"algorithm.seed": [1, 2]}}, "over.algorithm.seed"),
        ({"name": "main-table"}, "name"), ({"searches": True}, "searches"),
    ],
)  # fmt: skip
def test_a_wrong_field_or_value_is_refused_before_anything_is_queued(write, tmp_path, changes, name):
    with pytest.raises(SpecError) as refusal:
        sweeps.sweep_of_file(write(**changes))
    assert name in str(refusal.value)
    exgrpo(tmp_path / "runs", "sweep", write(**changes), code=2)
    assert not (tmp_path / "runs").exists()


def test_a_sweep_says_what_it_would_start_queues_it_once_and_adds_what_is_new(write, tmp_path, monkeypatch):
    monkeypatch.setattr("exgrpo.jobs.cli.study.leave_to_supervisor", lambda *_: None)
    root = tmp_path / "runs"
    planned = printed_json(root, "sweep", write(), "--dry-run")
    assert [(row["seed"], row["state"]) for row in planned] == [(3, "missing")] * 2 + [(5, "missing")] * 2
    assert not list_run_directories(root)
    for seeds, num_runs in (([3, 5], 4), ([3, 5], 4), ([3, 5, 8], 6)):
        exgrpo(root, "sweep", write(over=BASE["over"] | {"seed": seeds}), "--detach")
        assert len(list_run_directories(root)) == num_runs
    states = printed_json(root, "study", "status", "rates")["runs"]
    assert [row["state"] for row in states] == ["queued"] * 6
    exgrpo(root, "sweep", write(base="chains-on-policy"), code=2)  # whose runs would count as those of the other
    assert len(list_run_directories(root)) == 6


@pytest.mark.parametrize("base", [
    {"preset": "chains-exgrpo"}, {"extends": "chains-exgrpo"}, {"preset": "chains-exgrpo", "num_steps": 9},
    {"extends": "chains-on-policy", "preset": "chains-exgrpo"},
    {"preset": "chains-grpo", "optim": {"learning_rate": 0.001}},
])  # fmt: skip
def test_fields_of_a_base_change_the_preset_that_they_name(write, base):
    (cell,) = sweeps.sweep_of_file(write(base=base, over={"seed": [1]})).cells
    name = base.get("extends", base.get("preset"))
    changes = {field: value for field, value in base.items() if field not in {"extends", "preset"}}
    expected = merge_settings(load_preset(name).model_dump(mode="json"), changes)
    assert {**cell.own.changes, "seed": 0} == {**expected, "seed": 0}


def test_a_whole_specification_stays_as_it_is_whatever_preset_it_names(write):
    whole = load_preset("chains-grpo").model_dump(mode="json") | {"preset": "chains-exgrpo"}
    (cell,) = sweeps.sweep_of_file(write(base=whole, over={"seed": [1]})).cells
    assert cell.own.changes["algorithm"] == whole["algorithm"]


def test_a_base_with_an_unknown_preset_is_refused(write):
    with pytest.raises(SpecError, match="chains-exgrp"):
        sweeps.sweep_of_file(write(base={"preset": "chains-exgrp"}, over={"seed": [1]}))
