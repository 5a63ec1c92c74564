"""An index of PostgreSQL that finds the newest runs of a kind without reading every run's specification."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_context().dialect.name != "postgresql":
        return
    kind = "coalesce(CAST((spec ->> 'kind') AS VARCHAR), 'train')"
    op.execute(f"CREATE INDEX runs_by_kind ON runs (({kind}), created_at DESC, run_id DESC)")
