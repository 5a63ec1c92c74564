"""The first schema: a new database is made from the tables themselves, so that only later changes are written here."""

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing: no earlier schema exists."""
