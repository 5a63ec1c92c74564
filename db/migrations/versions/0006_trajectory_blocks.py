"""The facts that lists of trajectories filter by, packed a step at a time."""

import sqlalchemy as sa
from alembic import op

from db.trajectory_blocks import make_blocks

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "trajectory_blocks",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("replayed", sa.LargeBinary(), nullable=False),
        sa.Column("facts", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "step", "attempt"),
    )
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        # Packed numbers hardly shrink, and unpacking them would take longer than reading them.
        op.execute("ALTER TABLE trajectory_blocks ALTER COLUMN facts SET STORAGE EXTERNAL")
    make_blocks(connection, list(connection.scalars(sa.text("SELECT run_key FROM runs"))))
