"""The tables of user annotations of trajectories: marks with comments, saved cases, verdicts."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text

from db.tables.column_types import LargeInteger, UtcDateTime


def _run_key() -> Column[int]:
    return Column("run_key", Integer, ForeignKey("runs.run_key", ondelete="CASCADE"), primary_key=True)


def define_annotation_tables(metadata: MetaData) -> tuple[Table, Table, Table]:
    """Return the tables `saved_cases`, `verdict_overrides` and `trajectory_marks`, added to `metadata`."""
    cases = Table(
        "saved_cases",
        metadata,
        _run_key(),
        Column("case_set", String(80), primary_key=True),
        Column("attempt", Integer, primary_key=True, autoincrement=False),
        Column("low_trajectory_id", LargeInteger, primary_key=True, autoincrement=False),
        Column("high_trajectory_id", LargeInteger, primary_key=True, autoincrement=False),
        Column("at", UtcDateTime, nullable=False),
        Index("saved_cases_by_set", "case_set"),
    )
    overrides = Table(
        "verdict_overrides",
        metadata,
        _run_key(),
        Column("attempt", Integer, primary_key=True, autoincrement=False),
        Column("trajectory_id", LargeInteger, primary_key=True, autoincrement=False),
        Column("is_valid", Boolean, nullable=False),
        Column("at", UtcDateTime, nullable=False),
    )
    marks = Table(
        "trajectory_marks",
        metadata,
        _run_key(),
        Column("mark", String(80), primary_key=True),
        Column("attempt", Integer, primary_key=True, autoincrement=False),
        Column("trajectory_id", LargeInteger, primary_key=True, autoincrement=False),
        Column("comment", Text, nullable=False),
        Column("at", UtcDateTime, nullable=False),
        Index("trajectory_marks_by_mark", "mark"),
    )
    return cases, overrides, marks
