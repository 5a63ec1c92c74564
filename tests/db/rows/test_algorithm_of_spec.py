import pytest

from db.rows.algorithm_of_spec import algorithm_settings, experience_ratio


@pytest.mark.parametrize(
    ("spec", "ratio"),
    [
        ({"algorithm": {"experience_ratio": 0.25}}, 0.25),
        ({"algorithm": {"experience_ratio": 0.0}}, 0.0),
        ({"algorithm": {}}, 0.5),
        ({"kind": "train"}, 0.5),
        ({"kind": "eval"}, 0.0),
    ],
)
def test_a_ratio_that_is_not_written_is_the_algorithms_default(spec, ratio):
    assert experience_ratio(spec) == ratio


def test_hyperparameters_that_are_not_written_have_the_algorithms_defaults():
    settings = algorithm_settings({"algorithm": {"bucket_center": 0.75}})
    assert (settings["bucket_center"], settings["bucket_spread"]) == (0.75, 1.0)
    assert settings["trajectory_selection"] == "lowest_entropy"
