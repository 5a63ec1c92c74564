import pytest

from bench.weight import count_lines, find_excess

pytestmark = pytest.mark.slow


def test_a_figure_above_its_number_is_told_with_what_to_do():
    assert find_excess({"app": 10, "db": 5}, {"app": 10, "db": 5}) == []
    (sentence,) = find_excess({"app": 1001, "db": 5}, {"app": 1000, "db": 5})
    assert sentence.startswith("app: 1,001 is above 1,000 in pyproject.toml")


def test_a_figure_without_a_number_is_told():
    assert len(find_excess({"new": 1}, {})) == 1


def test_every_package_has_lines():
    assert min(count_lines().values()) > 50
