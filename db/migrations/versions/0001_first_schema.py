"""The first schema: runs, attempts, steps, trajectories with full-text search, buffer, evaluations, checkpoints."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
LARGE_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

SQLITE_SEARCH = (
    "CREATE VIRTUAL TABLE trajectory_search USING fts5(facets, text, content='trajectory_texts',"
    " content_rowid='trajectory_key', tokenize='unicode61 remove_diacritics 0')",
    "CREATE TRIGGER trajectory_texts_inserted AFTER INSERT ON trajectory_texts BEGIN"
    " INSERT INTO trajectory_search(rowid, facets, text) VALUES (new.trajectory_key, new.facets, new.text); END",
    "CREATE TRIGGER trajectory_texts_deleted AFTER DELETE ON trajectory_texts BEGIN"
    " INSERT INTO trajectory_search(trajectory_search, rowid, facets, text)"
    " VALUES ('delete', old.trajectory_key, old.facets, old.text); END",
)
# PostgreSQL's parser would read words of its own into numbers, paths and hyphens, and takes at most 1 MB.
POSTGRESQL_SEARCH = (
    "ALTER TABLE trajectory_texts ADD COLUMN search tsvector GENERATED ALWAYS AS"
    r" (to_tsvector('simple', regexp_replace(left(text, 200000), '[!-/:-@\[-`{-~]+', ' ', 'g'))) STORED",
    "CREATE INDEX trajectory_texts_by_word ON trajectory_texts USING gin (search)",
)


def upgrade() -> None:
    op.create_table(
        "ingest_positions",
        sa.Column("source", sa.String(length=100), nullable=False),
        sa.Column("position", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("source"),
    )
    op.create_table(
        "runs",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=80), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("status_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("spec", JSON_DOCUMENT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_event_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("step", sa.Integer(), server_default="0", nullable=False),
        sa.Column("summary", JSON_DOCUMENT, nullable=False),
        sa.Column("is_archived", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("parent_run_id", sa.String(length=80), nullable=True),
        sa.Column("branched_from_step", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("run_key"),
        sa.UniqueConstraint("run_id"),
    )
    op.create_table(
        "attempts",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("resumed_from_step", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("status", sa.String(length=16), server_default="starting", nullable=False),
        sa.Column("status_reason", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "attempt"),
    )
    op.create_table(
        "bucket_counts",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("num_questions", sa.Integer(), nullable=False),
        sa.Column("probability", sa.Double(), nullable=True),
        sa.Column("num_drawn", sa.Integer(), nullable=False),
        sa.Column("deficit", sa.Integer(), nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "step", "attempt", "bucket"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "buffer_changes",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("question_index", sa.Integer(), nullable=False),
        sa.Column("trajectory_id", LARGE_INTEGER, nullable=True),
        sa.Column("bucket_from", sa.Integer(), nullable=True),
        sa.Column("bucket_to", sa.Integer(), nullable=True),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "step", "attempt", "position"),
        sqlite_with_rowid=False,
    )
    op.create_index("buffer_changes_by_question", "buffer_changes", ["run_key", "question_index", "step"], unique=False)
    op.create_table(
        "candidates",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("question_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("trajectory_id", LARGE_INTEGER, nullable=False),
        sa.Column("born_step", sa.Integer(), nullable=False),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("entropy", sa.Double(), nullable=True),
        sa.Column("nll", sa.Double(), nullable=True),
        sa.Column("score", sa.Double(), nullable=True),
        sa.Column("is_chosen", sa.Boolean(), nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "step", "attempt", "question_index", "position"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checkpoints",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("num_bytes", LARGE_INTEGER, nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "step", "attempt"),
    )
    op.create_table(
        "evaluations",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("question_set", sa.String(length=16), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("samples_per_question", sa.Integer(), nullable=False),
        sa.Column("avg_at_n", sa.Double(), nullable=True),
        sa.Column("standard_error", sa.Double(), nullable=True),
        sa.Column("pass_at_n", sa.Double(), nullable=True),
        sa.Column("temperature", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("question_ids", JSON_DOCUMENT, nullable=False),
        sa.Column("num_correct", JSON_DOCUMENT, nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "question_set", "step", "attempt"),
    )
    op.create_table(
        "ingested_events",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "attempt", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "metrics",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "key", "step", "attempt"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "notes",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "at"),
    )
    op.create_table(
        "questions",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("question_set", sa.String(length=16), nullable=False),
        sa.Column("question_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("question_id", sa.String(length=80), nullable=False),
        sa.Column("prompt_text", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("details", JSON_DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "question_set", "question_index"),
    )
    op.create_index("questions_by_id", "questions", ["question_id"], unique=False)
    op.create_table(
        "replays",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("group_position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("question_index", sa.Integer(), nullable=False),
        sa.Column("trajectory_id", LARGE_INTEGER, nullable=False),
        sa.Column("born_step", sa.Integer(), nullable=False),
        sa.Column("is_external", sa.Boolean(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=False),
        sa.Column("advantage", sa.Double(), nullable=True),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("mean_entropy", sa.Double(), nullable=True),
        sa.Column("mean_log_prob", sa.Double(), nullable=True),
        sa.Column("mean_ratio", sa.Double(), nullable=True),
        sa.Column("max_ratio", sa.Double(), nullable=True),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "step", "attempt", "group_position"),
    )
    op.create_index("replays_by_trajectory", "replays", ["run_key", "trajectory_id"], unique=False)
    op.create_table(
        "selections",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("question_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("chosen_trajectory_id", LARGE_INTEGER, nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "step", "attempt", "question_index"),
    )
    op.create_table(
        "steps",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_started", sa.Boolean(), nullable=False),
        sa.Column("is_finite", sa.Boolean(), nullable=False),
        sa.Column("notices", JSON_DOCUMENT, nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "step", "attempt"),
    )
    op.create_table(
        "tags",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("tag", sa.String(length=80), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "tag"),
    )
    op.create_table(
        "trajectories",
        sa.Column("trajectory_key", LARGE_INTEGER, autoincrement=False, nullable=False),
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("trajectory_id", LARGE_INTEGER, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("question_index", sa.Integer(), nullable=False),
        sa.Column("group_position", sa.Integer(), nullable=False),
        sa.Column("group_slot", sa.Integer(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("is_valid", sa.Boolean(), nullable=True),
        sa.Column("has_code", sa.Boolean(), nullable=True),
        sa.Column("is_truncated", sa.Boolean(), nullable=False),
        sa.Column("num_tokens", sa.Integer(), nullable=False),
        sa.Column("mean_entropy", sa.Double(), nullable=True),
        sa.Column("mean_log_prob", sa.Double(), nullable=True),
        sa.Column("advantage", sa.Double(), nullable=True),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("is_superseded", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("trajectory_key"),
    )
    op.create_index("trajectories_by_question", "trajectories", ["run_key", "question_index", "step"], unique=False)
    op.create_index("trajectories_by_step", "trajectories", ["run_key", "step", "trajectory_id"], unique=False)
    op.create_table(
        "trajectory_texts",
        sa.Column("trajectory_key", LARGE_INTEGER, autoincrement=False, nullable=False),
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("facets", sa.String(length=20), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("trajectory_key"),
    )
    op.create_index("trajectory_texts_by_run", "trajectory_texts", ["run_key"], unique=False)
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in SQLITE_SEARCH if is_sqlite else POSTGRESQL_SEARCH:
        op.execute(statement)
