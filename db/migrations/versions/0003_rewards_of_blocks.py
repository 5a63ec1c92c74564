"""Rewards: among the packed facts of trajectories, so that lists filter by them."""

import numpy as np
import sqlalchemy as sa
from alembic import op

from db.tables.column_types import Number

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
_BEFORE = np.dtype(
    [
        ("trajectory_id", "<u4"),
        ("question_index", "<i4"),
        ("num_tokens", "<i4"),
        ("mean_entropy", "<f8"),
        ("bucket", "<i2"),
        *((name, "i1") for name in ("verdict", "is_correct", "is_valid", "has_code")),
    ]
)
_AFTER = np.dtype([*_BEFORE.descr[:4], ("reward", "<f8"), *_BEFORE.descr[4:]])
_KEY = ("run_key", "step", "attempt")
_BLOCKS = sa.table("trajectory_blocks", *map(sa.column, (*_KEY, "part", "facts")))
_ROWS = sa.table("trajectories", *map(sa.column, (*_KEY, "trajectory_id")), sa.column("reward", Number()))


def upgrade() -> None:
    connection = op.get_bind()
    for block in connection.execute(sa.select(_BLOCKS)).all():
        of_step = [_ROWS.c[name] == getattr(block, name) for name in _KEY]
        rewards = dict(connection.execute(sa.select(_ROWS.c.trajectory_id, _ROWS.c.reward).where(*of_step)).all())
        before = np.frombuffer(block.facts, dtype=_BEFORE)
        after = np.empty(len(before), dtype=_AFTER)
        for name in _BEFORE.names or ():
            after[name] = before[name]
        known = (rewards.get(number) for number in before["trajectory_id"].tolist())
        after["reward"] = [np.nan if reward is None else reward for reward in known]
        is_it = [_BLOCKS.c[name] == getattr(block, name) for name in (*_KEY, "part")]
        connection.execute(_BLOCKS.update().where(*is_it).values(facts=after.tobytes()))
