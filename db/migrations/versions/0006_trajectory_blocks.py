"""The facts that lists of trajectories filter by, packed a step at a time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import sqlalchemy as sa
from alembic import op
from sqlalchemy import Connection

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_FACTS = np.dtype(
    [
        ("trajectory_id", "<u4"),
        ("question_index", "<i4"),
        ("num_tokens", "<i4"),
        ("mean_entropy", "<f8"),
        ("bucket", "<i2"),
        ("verdict", "i1"),
        ("is_correct", "i1"),
        ("is_valid", "i1"),
        ("has_code", "i1"),
    ]
)
_IDS = np.dtype("<u4")
_VERDICTS = ("correct", "wrong", "unparsed", "timeout", "crash")
_NONE = -1
_PLACES = sa.text("SELECT run_key, step, attempt, is_superseded FROM steps WHERE run_key = :run_key")
_AT = " WHERE run_key = :run_key AND step = :step AND attempt = :attempt"
_STORED = sa.text(f"SELECT trajectory_id, bucket_to FROM buffer_changes{_AT} AND kind = 'inserted'")
_TRAJECTORIES = sa.text(
    "SELECT trajectory_id, question_index, num_tokens, mean_entropy, verdict, reward, is_valid, has_code"
    f" FROM trajectories{_AT} ORDER BY trajectory_key"
)
_REPLAYED = sa.text(f"SELECT trajectory_id FROM replays{_AT} AND NOT is_external ORDER BY group_position")
_INSERT = sa.text(
    "INSERT INTO trajectory_blocks (run_key, step, attempt, is_superseded, replayed, facts)"
    " VALUES (:run_key, :step, :attempt, :is_superseded, :replayed, :facts)"
)


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
    for run_key in connection.scalars(sa.text("SELECT run_key FROM runs")).all():
        for item in connection.execute(_PLACES, {"run_key": run_key}).mappings().all():
            packed = _pack_step(connection, {name: item[name] for name in ("run_key", "step", "attempt")})
            if any(packed.values()):
                connection.execute(_INSERT, dict(item) | packed)


# This revision's own copy of how facts were packed then: what the program does later may differ.
def _pack_step(connection: Connection, place: Mapping[str, Any]) -> dict[str, bytes]:
    buckets = {row[0]: row[1] for row in connection.execute(_STORED, place)}
    facts = sorted(_facts(row, buckets) for row in connection.execute(_TRAJECTORIES, place).mappings())
    replayed = connection.scalars(_REPLAYED, place).all()
    return {"facts": np.array(facts, _FACTS).tobytes(), "replayed": np.array(replayed, _IDS).tobytes()}


def _facts(row: Mapping[Any, Any], buckets: Mapping[int, int]) -> tuple[Any, ...]:
    entropy, verdict = row["mean_entropy"], row["verdict"]
    return (
        row["trajectory_id"],
        row["question_index"],
        row["num_tokens"],
        np.nan if entropy is None else entropy,
        buckets.get(row["trajectory_id"], _NONE),
        _VERDICTS.index(verdict) if verdict in _VERDICTS else _NONE,
        row["reward"] >= 1.0,
        _NONE if row["is_valid"] is None else row["is_valid"],
        _NONE if row["has_code"] is None else row["has_code"],
    )
