"""Scores of benchmarks, and answers on which the schemes of scoring differ."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "benchmark_scores",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("benchmark", sa.String(length=32), nullable=False),
        sa.Column("scheme", sa.String(length=16), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("title", sa.String(length=80), nullable=False),
        sa.Column("num_questions", sa.Integer(), nullable=False),
        sa.Column("samples_per_question", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("standard_error", sa.Double(), nullable=True),
        sa.Column("question_ids", JSON_DOCUMENT, nullable=False),
        sa.Column("num_correct", JSON_DOCUMENT, nullable=False),
        sa.Column("outcomes", JSON_DOCUMENT, nullable=False),
        sa.Column("comparability", JSON_DOCUMENT, nullable=False),
        sa.Column("comparability_key", sa.String(length=16), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("source_run_id", sa.String(length=80), nullable=True),
        sa.Column("source_step", sa.Integer(), nullable=True),
        sa.Column("mean_tokens", sa.Float(), nullable=False),
        sa.Column("truncated_share", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "benchmark", "scheme"),
    )
    op.create_index("benchmark_scores_by_source", "benchmark_scores", ["source_run_id", "benchmark"], unique=False)
    op.create_table(
        "disputed_answers",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("benchmark", sa.String(length=32), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("question_id", sa.String(length=80), nullable=False),
        sa.Column("sample", sa.Integer(), nullable=False),
        sa.Column("gold", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("paper", sa.String(length=16), nullable=False),
        sa.Column("training", sa.String(length=16), nullable=False),
        sa.Column("corrected", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "benchmark", "position"),
    )
