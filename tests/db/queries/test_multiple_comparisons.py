import pytest

from db.queries.multiple_comparisons import holm


def test_p_values_are_multiplied_by_the_number_of_tests_that_are_left():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02]) == [0.02]
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
