import pytest

from exgrpo.jobs.actions.studies.definition import (
    RunKey,
    Scale,
    key_from_tags,
    load_study,
    spec_of,
    study_names,
    wanted_keys,
)


@pytest.mark.parametrize("name", study_names())
@pytest.mark.parametrize("scale", list(Scale))
def test_every_cell_makes_a_specification_unlike_others_and_of_the_model_and_data_of_its_baseline(name, scale):
    study = load_study(name)
    keys = wanted_keys(study, scale, study.cells, 1)
    assert bool(keys) == bool(study.cells_at(scale))
    specs = {key.cell: spec_of(study, key) for key in keys}
    engines = {spec.engine for spec in specs.values() if spec.sft is None}
    assert engines <= {"verl" if scale is Scale.PAPER else "embedded"}
    settings = {
        (study.cell(cell).starts_from, spec.model_dump_json(exclude={"name", "tags", "preset"}))
        for cell, spec in specs.items()
    }
    assert len(settings) == len(specs)
    for cell, spec in specs.items():
        baseline = specs.get(study.baseline_of(study.cell(cell)), spec)
        assert (spec.model, spec.data) == (baseline.model, baseline.data)


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
