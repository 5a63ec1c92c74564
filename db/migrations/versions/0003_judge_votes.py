"""Votes of judges on chains of thought."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
LARGE_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "judge_votes",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("item_id", sa.Text(), nullable=False),
        sa.Column("vote", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.Column("source_attempt", sa.Integer(), nullable=True),
        sa.Column("trajectory_id", LARGE_INTEGER, nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("issues", JSON_DOCUMENT, nullable=False),
        sa.Column("label", sa.Boolean(), nullable=True),
        sa.Column("judge", sa.Text(), nullable=False),
        sa.Column("prompt", sa.String(length=80), nullable=False),
        sa.Column("num_requests", sa.Integer(), nullable=False),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "item_id", "vote"),
    )
    op.create_index("judge_votes_by_trajectory", "judge_votes", ["source", "trajectory_id"])
