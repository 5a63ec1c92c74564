"""The tables. Rows follow from run directories; user annotations (tags, notes, cases, verdicts, marks) from a journal.

`run_key` is a run's number inside this database; `run_id` is the name that users and files know. Rows that belong to
a step carry the attempt that wrote them. Steps that a later attempt repeated are in the files only.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    false,
)

from exgrpo.db.tables.column_types import JsonDocument, LargeInteger, Number, OptionalDocument, UtcDateTime
from exgrpo_core.config import MAX_ROLLOUTS
from exgrpo_core.recording.run_status import RunStatus

metadata = MetaData()
runs = Table(
    "runs",
    metadata,
    Column("run_key", Integer, primary_key=True),
    Column("run_id", String(80), nullable=False, unique=True),
    Column("name", String(80), nullable=False),
    Column("status", String(16), nullable=False),
    Column("status_reason", Text, nullable=False, server_default=""),
    Column("spec", JsonDocument, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("last_event_at", UtcDateTime),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("step", Integer, nullable=False, server_default="0"),
    Column("summary", JsonDocument, nullable=False),
    Column("is_archived", Boolean, nullable=False, server_default=false()),
    Column("parent_run_id", String(80)),
    Column("branched_from_step", Integer),
)
ingest_positions = Table(
    "ingest_positions",
    metadata,
    Column("source", String(100), primary_key=True),
    Column("position", Text, nullable=False),
)
trajectory_texts = Table(
    "trajectory_texts",
    metadata,
    Column("trajectory_key", LargeInteger, primary_key=True, autoincrement=False),
    Column("run_key", Integer, ForeignKey("runs.run_key", ondelete="CASCADE"), nullable=False),
    Column("text", Text, nullable=False),
    Column("messages", OptionalDocument),
    Column("role_words", Text),
    Index("trajectory_texts_by_run", "run_key"),
)
"""Texts are in a separate table so that lists do not read them; of a conversation `text` is the response alone."""


def _keys(*names: str, **kinds: Any) -> Iterator[Column[Any]]:  # noqa: ANN401 - types of columns
    """Yield the columns of a primary key: the run's, then these, which are whole numbers or of another kind by name."""
    yield Column("run_key", Integer, ForeignKey("runs.run_key", ondelete="CASCADE"), primary_key=True)
    yield from (Column(name, kinds.get(name, Integer), primary_key=True, autoincrement=False) for name in names)


def _bucket(name: str, *, is_key: bool = False, nullable: bool = False) -> Column[int]:
    """Return a column of buckets, of which there are no more than rollouts a question."""
    options = {"limit": MAX_ROLLOUTS + 1}
    return Column(name, Integer, primary_key=is_key, autoincrement=False, nullable=nullable, info=options)


attempts = Table(
    "attempts",
    metadata,
    *_keys("attempt"),
    Column("resumed_from_step", Integer),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("status", String(16), nullable=False, server_default=RunStatus.STARTING),
    Column("status_reason", Text, nullable=False, server_default=""),
)

ingested_events = Table("ingested_events", metadata, *_keys("attempt", "seq"), sqlite_with_rowid=False)


steps = Table(
    "steps",
    metadata,
    *_keys("step", "attempt"),
    Column("at", UtcDateTime, nullable=False),
    Column("is_replay_open", Boolean, nullable=False),
    Column("is_finite", Boolean, nullable=False),
    Column("notices", JsonDocument, nullable=False),
    Column("sums", OptionalDocument),  # of a recorded step: `exgrpo_core.sums`
)
metrics = Table(
    "metrics",
    metadata,
    *_keys("name", "step", "attempt", name=Text),
    Column("value", Number),
    sqlite_with_rowid=False,
)

questions = Table(
    "questions",
    metadata,
    *_keys("question_set", "question_index", question_set=String(16)),
    Column("question_id", String(80), nullable=False),
    Column("prompt_text", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("details", JsonDocument, nullable=False),
    Index("questions_by_id", "question_id"),
)

trajectories = Table(
    "trajectories",
    metadata,
    Column("trajectory_key", LargeInteger, primary_key=True, autoincrement=False),
    Column("run_key", Integer, ForeignKey("runs.run_key", ondelete="CASCADE"), nullable=False),
    Column("trajectory_id", LargeInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("question_index", Integer, nullable=False),
    Column("group_position", Integer, nullable=False),
    Column("group_slot", Integer, nullable=False),
    Column("reward", Number),
    Column("verdict", String(16), nullable=False),
    Column("is_valid", Boolean),
    Column("has_code", Boolean),
    Column("is_truncated", Boolean),
    Column("num_tokens", Integer),
    Column("mean_entropy", Number),
    Column("mean_log_prob", Number),
    Column("advantage", Number),
    Column("correctness_rate", Float),
    Column("code_rules", Integer),
    Column("has_python_block", Boolean),
    Column("file", Text, nullable=False),
    *(Column(name, Integer) for name in ("num_turns", "num_tool_calls", "num_tool_errors")),
    *(Column(name, OptionalDocument) for name in ("tokens_by_role", "extra")),
    Column("recorded_id", Text),
    _bucket("bucket", nullable=True),
    Column("tools", OptionalDocument),
    Index("trajectories_by_id", "run_key", "trajectory_id"),
    Index("trajectories_by_step", "run_key", "step", "trajectory_id"),
    Index("trajectories_by_question", "run_key", "question_index", "step"),
)
"""`correctness_rate` is that of the group's fresh rollouts; `code_rules` has a bit for each rule, the first for R1.

Turns, calls, tokens by role and names of tools are of conversations; `extra` is what else was recorded; annotations say
`recorded_id`. `bucket` is the question's when the trajectory was stored. Lists filter by any mixture of columns: no
index serves that, but a scan of a run does, since texts are in a table of their own.
"""

replays = Table(
    "replays",
    metadata,
    *_keys("step", "attempt", "group_position"),
    Column("question_index", Integer, nullable=False),
    Column("trajectory_id", LargeInteger, nullable=False),
    Column("rollout_step", Integer, nullable=False),
    Column("is_external", Boolean, nullable=False),
    Column("reward", Float, nullable=False),
    Column("advantage", Number),
    Column("num_tokens", Integer, nullable=False),
    Column("mean_entropy", Number),
    Column("mean_log_prob", Number),
    Column("mean_ratio", Number),
    Column("max_ratio", Number),
    Column("file", Text, nullable=False),
    Index("replays_by_trajectory", "run_key", "trajectory_id"),
)

buffer_changes = Table(
    "buffer_changes",
    metadata,
    *_keys("step", "attempt", "position"),
    Column("kind", String(16), nullable=False),
    Column("question_index", Integer, nullable=False),
    Column("trajectory_id", LargeInteger),
    _bucket("bucket_from", nullable=True),
    _bucket("bucket_to", nullable=True),
    Index("buffer_changes_by_question", "run_key", "question_index", "step"),
    sqlite_with_rowid=False,
)

selections = Table(
    "selections",
    metadata,
    *_keys("step", "attempt", "question_index"),
    _bucket("bucket"),
    Column("chosen_trajectory_id", LargeInteger, nullable=False),
)

candidates = Table(
    "candidates",
    metadata,
    *_keys("step", "attempt", "question_index", "position"),
    Column("trajectory_id", LargeInteger, nullable=False),
    Column("rollout_step", Integer, nullable=False),
    Column("num_tokens", Integer, nullable=False),
    Column("entropy", Number),
    Column("nll", Number),
    Column("score", Number),
    Column("is_chosen", Boolean, nullable=False),
    sqlite_with_rowid=False,
)

bucket_counts = Table(
    "bucket_counts",
    metadata,
    *_keys("step", "attempt"),
    _bucket("bucket", is_key=True),
    Column("num_questions", Integer, nullable=False),
    Column("probability", Number),
    Column("num_drawn", Integer, nullable=False),
    Column("overflow", Integer, nullable=False),
    sqlite_with_rowid=False,
)

evaluations = Table(
    "evaluations",
    metadata,
    *_keys("question_set", "step", "attempt", question_set=String(16)),
    Column("at", UtcDateTime, nullable=False),
    Column("samples_per_question", Integer, nullable=False),
    Column("avg_at_n", Number),
    Column("standard_error", Number),
    Column("pass_at_n", Number),
    Column("temperature", Number),
    Column("seconds", Number),
    Column("question_ids", JsonDocument, nullable=False),
    Column("num_correct", JsonDocument, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    *_keys("step", "attempt"),
    Column("at", UtcDateTime, nullable=False),
    Column("path", Text, nullable=False),
    Column("num_bytes", LargeInteger, nullable=False),
)

judge_votes = Table(
    "judge_votes",
    metadata,
    *_keys("item_id", "vote", item_id=Text),
    Column("source", String(200), nullable=False),
    Column("source_attempt", Integer),
    Column("trajectory_id", LargeInteger),
    Column("outcome", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("issues", JsonDocument, nullable=False),
    Column("label", Boolean),
    Column("judge", Text, nullable=False),
    Column("prompt", String(80), nullable=False),
    Column("num_requests", Integer, nullable=False),
    Column("num_tokens", Integer, nullable=False),
    Column("answer", Text, nullable=False),
    Index("judge_votes_by_trajectory", "source", "trajectory_id"),
)
"""Votes of a judge's job (`run_key`) on responses of a training run or of a labelled file (`source`)."""

tags = Table("tags", metadata, *_keys("tag", tag=Text))

notes = Table(
    "notes",
    metadata,
    *_keys("at", at=UtcDateTime),
    Column("text", Text, nullable=False),
)

benchmark_scores = Table(
    "benchmark_scores",
    metadata,
    *_keys("benchmark", "scheme", benchmark=String(32), scheme=String(16)),
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

saved_cases = Table(
    "saved_cases",
    metadata,
    *_keys(
        "case_set",
        "attempt",
        "low_trajectory_id",
        "high_trajectory_id",
        case_set=String(80),
        low_trajectory_id=LargeInteger,
        high_trajectory_id=LargeInteger,
    ),
    Column("at", UtcDateTime, nullable=False),
    Index("saved_cases_by_set", "case_set"),
)
verdict_overrides = Table(
    "verdict_overrides",
    metadata,
    *_keys("attempt", "trajectory_id", trajectory_id=LargeInteger),
    Column("is_valid", Boolean, nullable=False),
    Column("at", UtcDateTime, nullable=False),
)
trajectory_marks = Table(
    "trajectory_marks",
    metadata,
    *_keys("mark", "attempt", "trajectory_id", mark=String(80), trajectory_id=LargeInteger),
    Column("comment", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Index("trajectory_marks_by_mark", "mark"),
)


STEP_TABLES = tuple(
    table for table in metadata.sorted_tables if {"attempt", "step"} <= {*table.c.keys()} and table is not runs
)
"""Tables whose rows belong to a step of an attempt."""
