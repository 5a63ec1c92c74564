import pytest

from db.rows.analysis import difficulty_of


@pytest.mark.parametrize(
    ("rate", "difficulty"),
    [(1.0, "easy"), (0.76, "easy"), (0.75, "medium"), (0.26, "medium"), (0.25, "hard"), (0.0, "hard")],
)
def test_difficulty_is_the_papers_with_medium_at_three_quarters_and_hard_at_one(rate, difficulty):
    assert difficulty_of(rate) == difficulty
