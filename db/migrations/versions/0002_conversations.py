"""Conversations: messages beside texts, their counts, words by role; facts that a recorder may lack may be NULL."""

import sqlalchemy as sa
from alembic import op

from db.tables.column_types import Number, OptionalDocument

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
_SEARCH = {
    "sqlite": (
        "DROP TRIGGER trajectory_texts_inserted",
        "DROP TRIGGER trajectory_texts_deleted",
        "CREATE TRIGGER trajectory_texts_inserted AFTER INSERT ON trajectory_texts BEGIN"
        " INSERT INTO trajectory_search(rowid, text)"
        " VALUES (new.trajectory_key, new.text || coalesce(' ' || new.role_words, '')); END",
        "CREATE TRIGGER trajectory_texts_deleted AFTER DELETE ON trajectory_texts BEGIN"
        " INSERT INTO trajectory_search(trajectory_search, rowid, text)"
        " VALUES ('delete', old.trajectory_key, old.text || coalesce(' ' || old.role_words, '')); END",
    ),
    "postgresql": (
        "ALTER TABLE trajectory_texts DROP COLUMN search",
        "ALTER TABLE trajectory_texts ADD COLUMN search tsvector GENERATED ALWAYS AS"
        r" (to_tsvector('simple', regexp_replace(left(text, 200000), '[!-/:-@\[-`{-~]+', ' ', 'g')"
        " || coalesce(' ' || role_words, ''))) STORED",
        "CREATE INDEX trajectory_texts_by_word ON trajectory_texts USING gin (search)",
    ),
}
_BLOCKS = {
    "sqlite": (
        "ALTER TABLE trajectory_blocks RENAME TO blocks_of_0001",
        "CREATE TABLE trajectory_blocks (run_key INTEGER NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL,"
        " part INTEGER DEFAULT '0' NOT NULL, num_changes INTEGER DEFAULT '0' NOT NULL,"
        " is_superseded BOOLEAN DEFAULT 0 NOT NULL, replayed BLOB NOT NULL, facts BLOB NOT NULL, conversations BLOB,"
        " tools JSON, PRIMARY KEY (run_key, step, attempt, part),"
        " FOREIGN KEY(run_key) REFERENCES runs (run_key) ON DELETE CASCADE)",
        "INSERT INTO trajectory_blocks (run_key, step, attempt, is_superseded, replayed, facts)"
        " SELECT run_key, step, attempt, is_superseded, replayed, facts FROM blocks_of_0001",
        "DROP TABLE blocks_of_0001",
    ),
    "postgresql": (
        "ALTER TABLE trajectory_blocks ADD COLUMN part INTEGER DEFAULT 0 NOT NULL,"
        " ADD COLUMN num_changes INTEGER DEFAULT 0 NOT NULL, ADD COLUMN conversations BYTEA, ADD COLUMN tools JSONB,"
        " DROP CONSTRAINT trajectory_blocks_pkey, ADD PRIMARY KEY (run_key, step, attempt, part)",
    ),
}


def upgrade() -> None:
    with op.batch_alter_table("trajectories") as table:
        table.alter_column("reward", existing_type=sa.Float(), type_=Number(), nullable=True)
        table.alter_column("is_truncated", existing_type=sa.Boolean(), nullable=True)
        table.alter_column("num_tokens", existing_type=sa.Integer(), nullable=True)
        table.add_column(sa.Column("recorded_id", sa.Text()))
        for name in ("num_turns", "num_tool_calls", "num_tool_errors"):
            table.add_column(sa.Column(name, sa.Integer()))
        for name in ("tokens_by_role", "extra"):
            table.add_column(sa.Column(name, OptionalDocument))
    op.add_column("steps", sa.Column("sums", OptionalDocument))
    for statement in _BLOCKS[op.get_bind().dialect.name]:
        op.get_bind().exec_driver_sql(statement)
    op.add_column("trajectory_texts", sa.Column("messages", OptionalDocument))
    op.add_column("trajectory_texts", sa.Column("role_words", sa.Text()))
    for statement in _SEARCH[op.get_bind().dialect.name]:
        op.get_bind().exec_driver_sql(statement)
