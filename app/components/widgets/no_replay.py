"""Why a run has no replay buffer to show: it is on-policy, or adopted, so that nobody knows."""

from app.components.widgets import empty_state
from db.rows.runs import RunRow


def show(row: RunRow) -> None:
    """Show the reason in place of what a run that replays would show."""
    if row.is_adopted:
        empty_state.show(
            "help", "Unknown", "This run was adopted from verl's rollout dumps, which hold texts and scores only."
        )
    else:
        empty_state.show("replay", "No replay buffer", "This run is on-policy: it stores and replays nothing.")
