"""The red banner of a run whose choices contradict its recorded scores."""

from collections.abc import Sequence

from app.components.widgets import notice
from db.rows.selections import WrongChoiceRow

MAX_NAMED = 5


def show(wrong: Sequence[WrongChoiceRow]) -> None:
    """Show the banner where any selection contradicts its scores, nothing otherwise."""
    if wrong:
        named = ", ".join(f"step {row.step} question {row.question_index}" for row in wrong[:MAX_NAMED])
        notice.show(
            "error",
            "This run has choices that contradict their scores",
            f"{len(wrong)} selections, first {named}. Later results of this run rest on them.",
        )
