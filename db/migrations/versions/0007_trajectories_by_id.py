"""An index that finds one trajectory of a run."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("trajectories_by_id", "trajectories", ["run_key", "trajectory_id"], unique=False)
