"""The message on pages of a run whose specification cannot be read."""

from app.components.widgets import notice
from db.rows.runs import RunRow
from db.rows.unreadable_specs import UNREADABLE_KIND


def show(row: RunRow) -> None:
    """Show what is unknown and how to mend it; nothing for other runs."""
    if row.has_settings:
        return
    is_known = row.kind != UNREADABLE_KIND
    shown = "What it recorded is shown." if is_known else "It recorded nothing that says what kind of job it is."
    notice.show(
        "warning",
        "Settings cannot be read",
        f"spec.json of this run is damaged or missing. {shown}\n"
        "Copy spec.json from a backup, or from a run with the same name and settings. Then end `exgrpo up`, run "
        "`exgrpo db rebuild` and start `exgrpo up` again.",
    )
