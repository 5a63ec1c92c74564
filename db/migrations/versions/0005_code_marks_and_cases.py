"""Code marks and correctness of each trajectory's group; saved cases and users' own verdicts."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

LARGE_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
GROUP_RATES = """
UPDATE trajectories SET correctness_rate = found.rate FROM (
    SELECT run_key, step, attempt, group_position, avg(CASE WHEN reward >= 1.0 THEN 1.0 ELSE 0.0 END) AS rate
    FROM trajectories GROUP BY run_key, step, attempt, group_position
) AS found
WHERE found.run_key = trajectories.run_key AND found.step = trajectories.step
AND found.attempt = trajectories.attempt AND found.group_position = trajectories.group_position
"""


def upgrade() -> None:
    op.add_column("trajectories", sa.Column("correctness_rate", sa.Float(), nullable=True))
    op.add_column("trajectories", sa.Column("code_rules", sa.Integer(), nullable=True))
    op.add_column("trajectories", sa.Column("has_python_block", sa.Boolean(), nullable=True))
    op.execute(GROUP_RATES)
    op.create_table(
        "saved_cases",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("case_set", sa.String(length=80), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("low_trajectory_id", LARGE_INTEGER, autoincrement=False, nullable=False),
        sa.Column("high_trajectory_id", LARGE_INTEGER, autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "case_set", "attempt", "low_trajectory_id", "high_trajectory_id"),
    )
    op.create_index("saved_cases_by_set", "saved_cases", ["case_set"], unique=False)
    op.create_table(
        "verdict_overrides",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("trajectory_id", LARGE_INTEGER, autoincrement=False, nullable=False),
        sa.Column("is_valid", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "attempt", "trajectory_id"),
    )
