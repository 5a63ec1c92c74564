"""Memory: the database, an index of the run directories that can be dropped and rebuilt at any time."""

from pathlib import Path

DATABASE_URL_VARIABLE = "EXGRPO_DATABASE_URL"
"""Names the database in the environment, where its password is not seen by `ps`."""
SQLITE_FILE = Path("workbench") / "workbench.db"
"""Below the runs root, where no URL names a database."""
