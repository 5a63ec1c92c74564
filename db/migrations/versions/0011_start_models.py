"""How the warm model that an attempt's run begins with was chosen."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("start_model", sa.Text(), server_default="", nullable=False))
