import pytest

from bench.report import meets

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
