"""Means of the parts of a training reward over an evaluation's answers."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    column = sa.Column("reward_means", JSON_DOCUMENT, server_default="{}", nullable=False)
    op.add_column("benchmark_scores", column)
