import pytest

from jobs.specs.train import SpecError
from jobs.studies.definition import Scale, load_study, study_names
from jobs.studies.matrix import RunKey, key_from_tags, spec_of, wanted_keys


@pytest.mark.parametrize("name", study_names())
@pytest.mark.parametrize("scale", list(Scale))
def test_every_cell_makes_a_specification_unlike_others_and_of_the_model_and_data_of_its_baseline(name, scale):
    study = load_study(name)
    keys = wanted_keys(study, scale, study.cells, 1)
    assert bool(keys) == bool(study.cells_at(scale))
    specs = {key.cell: spec_of(study, key) for key in keys}
    assert {spec.engine for spec in specs.values()} <= {"verl" if scale is Scale.PAPER else "embedded"}
    settings = {
        (study.cell(cell).starts_from, spec.model_dump_json(exclude={"name", "tags", "preset"}))
        for cell, spec in specs.items()
    }
    assert len(settings) == len(specs)
    for cell, spec in specs.items():
        baseline = specs.get(study.baseline_of(study.cell(cell)), spec)
        assert (spec.model, spec.data) == (baseline.model, baseline.data)


def test_seeds_come_one_after_the_other_over_all_cells():
    study = load_study("repo")
    keys = wanted_keys(study, Scale.CHAINS, study.cells, 2)
    assert [(key.seed, key.cell) for key in keys] == [(0, "exgrpo-re"), (0, "repo"), (1, "exgrpo-re"), (1, "repo")]


def test_a_seed_sets_sampling_and_experience_management():
    study = load_study("ablations")
    spec = spec_of(study, RunKey("ablations", Scale.CHAINS, "rho-25", 3))
    assert (spec.seed, spec.algorithm.seed, spec.algorithm.experience_ratio) == (3, 3, 0.25)
    assert spec.preset is None or spec.preset == "chains-exgrpo"


def test_tags_tell_which_run_it_is_and_fit_the_rule_for_tags():
    for name in study_names():
        study = load_study(name)
        for key in wanted_keys(study, Scale.PAPER, study.cells, 8):
            assert key_from_tags(["mine", *key.tags]) == key
            assert max(len(tag) for tag in key.tags) <= 40


@pytest.mark.parametrize("tags", [(), ("study:ablations",), ("study:a", "scale:moon", "cell:b", "seed:1")])
def test_other_tags_are_no_run_of_a_study(tags):
    assert key_from_tags(tags) is None


def test_both_units_of_sigma_stand_as_rows_of_their_own():
    study = load_study("sensitivity")
    spreads = {
        cell.name: spec_of(study, RunKey(study.name, Scale.PAPER, cell.name, 0)).algorithm.bucket_spread
        for cell in study.cells
    }
    for row in study.tables[0].rows[1:]:
        rate, counts = row.cells
        assert spreads[counts] == spreads[rate] / 8


def test_an_unknown_cell_and_one_without_a_recipe_for_the_scale_are_refused():
    with pytest.raises(SpecError) as refused:
        load_study("repo").cell("x")
    assert refused.value.fields == ("--cells",)
    with pytest.raises(LookupError):
        spec_of(load_study("main-table"), RunKey("main-table", Scale.CHAINS, "luffy-exgrpo", 0))


def test_a_grid_has_a_cell_for_each_method_and_combination_of_values():
    study = load_study("crossover")
    assert len(study.cells) == 10 * 5 * 2 * 3
    cell = study.cell("redraw-e3-k4-n512")
    assert study.baseline_of(cell) == "on-policy-e3-k4-n512"
    assert study.baseline_of(study.cell("on-policy-e3-k4-n512")) is None
    spec = spec_of(study, RunKey(study.name, Scale.CHAINS, cell.name, 0))
    assert (spec.model.demonstrator_errors, spec.data.num_questions, spec.data.modulus) == (3.0, 512, 100)
    assert (spec.algorithm.rollouts_per_question, spec.algorithm.retired, spec.num_steps) == (4, "redraw", 157)


def test_seeds_use_the_warm_models_in_turn():
    study = load_study("crossover")
    keys = wanted_keys(study, Scale.CHAINS, [study.cells[0]], None)
    assert len(keys) == 24
    assert [spec_of(study, key).model.warm_seed for key in keys[:4]] == [0, 1, 2, 0]
    assert spec_of(load_study("repo"), RunKey("repo", Scale.CHAINS, "repo", 1)).model.warm_seed == 1
    assert spec_of(load_study("repo"), RunKey("repo", Scale.PAPER, "repo", 1)).model.warm_seed == 0
