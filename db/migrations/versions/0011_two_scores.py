"""Answers on which schemes of scoring differ are not kept."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("disputed_answers")
