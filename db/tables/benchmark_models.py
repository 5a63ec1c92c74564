"""The table of evaluations: scores of benchmarks."""

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

from db.tables.column_types import JsonDocument, Number, UtcDateTime


def _keys() -> list[Column[int] | Column[str]]:
    return [
        Column("run_key", Integer, ForeignKey("runs.run_key", ondelete="CASCADE"), primary_key=True),
        Column("benchmark", String(32), primary_key=True),
    ]


def define_benchmark_tables(metadata: MetaData) -> Table:
    """Return the table `benchmark_scores`, added to `metadata`."""
    return Table(
        "benchmark_scores",
        metadata,
        *_keys(),
        Column("scheme", String(16), primary_key=True),
        Column("at", UtcDateTime, nullable=False),
        Column("title", String(80), nullable=False),
        Column("num_questions", Integer, nullable=False),
        Column("samples_per_question", Integer, nullable=False),
        Column("score", Float, nullable=False),
        Column("standard_error", Number),
        Column("question_ids", JsonDocument, nullable=False),
        Column("num_correct", JsonDocument, nullable=False),
        Column("outcomes", JsonDocument, nullable=False),
        Column("comparability", JsonDocument, nullable=False),
        Column("comparability_key", String(16), nullable=False),
        Column("model", Text, nullable=False),
        Column("source_run_id", String(80)),
        Column("source_step", Integer),
        Column("mean_tokens", Float, nullable=False),
        Column("truncated_share", Float, nullable=False),
        Column("seconds", Float, nullable=False),
        Column("reward_means", JsonDocument, nullable=False, server_default="{}"),
        Index("benchmark_scores_by_source", "source_run_id", "benchmark"),
    )
