"""The metrics of a step, packed into its row; their names once a run."""

import json
from collections.abc import Iterator
from hashlib import blake2b
from struct import pack
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_LARGE_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
_METRICS = sa.text("SELECT key, step, attempt, value FROM metrics WHERE run_key = :run_key")
_PACK = sa.text(
    "UPDATE steps SET names_key = :names_key, metric_values = :metric_values"
    " WHERE run_key = :run_key AND step = :step AND attempt = :attempt"
)


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        # A program that ingests runs at the same time would wait for this one, and this one for the rows that it holds.
        op.execute("LOCK TABLE runs IN EXCLUSIVE MODE")
    names_table = op.create_table(
        "metric_names",
        sa.Column("run_key", sa.Integer(), nullable=False),
        sa.Column("names_key", _LARGE_INTEGER, autoincrement=False, nullable=False),
        sa.Column("names", _JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_key"], ["runs.run_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_key", "names_key"),
    )
    op.add_column("steps", sa.Column("names_key", _LARGE_INTEGER, nullable=True))
    op.add_column("steps", sa.Column("metric_values", sa.LargeBinary(), nullable=True))
    for run_key in connection.scalars(sa.text("SELECT run_key FROM runs")).all():
        known: dict[int, list[str]] = {}
        packed = [{"run_key": run_key, **row} for row in _packed_steps(connection, run_key, known)]
        if packed:
            connection.execute(_PACK, packed)
            rows = [{"run_key": run_key, "names_key": key, "names": names} for key, names in known.items()]
            connection.execute(sa.insert(names_table), rows)
    op.drop_table("metrics")


# This revision's own copy of how metrics were packed then: what the program does later may differ.
def _packed_steps(connection: Connection, run_key: int, known: dict[int, list[str]]) -> Iterator[dict[str, Any]]:
    steps: dict[tuple[int, int], dict[str, float]] = {}
    for key, step, attempt, value in connection.execute(_METRICS, {"run_key": run_key}):
        steps.setdefault((step, attempt), {})[key] = float("nan") if value is None else value
    for (step, attempt), item in steps.items():
        names = sorted(item)
        names_key = int.from_bytes(blake2b(json.dumps(names).encode(), digest_size=8).digest(), "big") >> 1
        known[names_key] = names
        values = pack(f"<{len(names)}d", *map(item.__getitem__, names))
        yield {"step": step, "attempt": attempt, "names_key": names_key, "metric_values": values}
