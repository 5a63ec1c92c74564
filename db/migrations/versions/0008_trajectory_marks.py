"""Marks that users put on trajectories, with comments."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

LARGE_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "trajectory_marks",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("mark", sa.String(length=80), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("trajectory_id", LARGE_INTEGER, autoincrement=False, nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "mark", "attempt", "trajectory_id"),
    )
    op.create_index("trajectory_marks_by_mark", "trajectory_marks", ["mark"], unique=False)
