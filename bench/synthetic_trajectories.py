"""Copies of a recorded run's trajectories and of their events, moved to other steps and questions."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product

from sqlalchemy import Connection, Engine, Table, text

from exgrpo.db.connections.session import Database
from exgrpo.db.tables import models

FIRST_SHARE = 0.7
"""The first run's share of all copies."""
MAX_OTHER_RUNS = 19
_SENTENCES_PER_TEXT = 8
_ATTEMPT = 1
_KEY = f"(CAST(c.run_key AS bigint) << 44) + (CAST({_ATTEMPT} AS bigint) << 32) + o.trajectory_id + c.first_id"
_TABLES = (
    models.questions,
    models.trajectories,
    models.trajectory_texts,
    models.replays,
    models.buffer_changes,
    models.selections,
    models.candidates,
    models.bucket_counts,
)
_ID = "(t.trajectory_id + c.first_id)"
_MOVED = {
    "run_key": "c.run_key",
    "attempt": str(_ATTEMPT),
    "step": "o.step + c.first_step",
    "rollout_step": "o.rollout_step + c.first_step",
    "question_index": "o.question_index + c.first_question",
    "trajectory_id": "o.trajectory_id + c.first_id",
    "chosen_trajectory_id": "o.chosen_trajectory_id + c.first_id",
    "group_position": "o.group_position + c.first_group",
}
NUM_SENTENCES = 4096
_COMMON_WORDS = """
    the we is of and to so that let then hence therefore since because if where for each both sum product factor
    equation term value number integer prime even odd square root triangle angle circle line point area length
    substitute simplify expand divide multiply subtract add check verify assume consider suppose obtain find count
    case proof answer result step first second next finally left right side positive negative remainder modulo
"""
_SYLLABLES = [onset + vowel for onset, vowel in product("bdfgklmnprstvz", "aeiou")]
_NUM_RARE_WORDS = 12_000
_SENTENCE_WORDS = (8, 20)
_SQLITE_SETTINGS = ("foreign_keys = OFF", "synchronous = OFF", "cache_size = -500000", "temp_store = MEMORY")
_CONSTRAINTS = text(
    "SELECT conname, pg_get_constraintdef(oid) AS definition FROM pg_constraint"
    " WHERE conrelid = CAST(:name AS regclass) AND contype IN ('f', 'p') ORDER BY contype"
)
_INDEXES = text(
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = :name"
    " AND indexname NOT IN (SELECT conname FROM pg_constraint WHERE conrelid = CAST(:name AS regclass))"
)


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the recorded run: its index among the copies of its run, and where its steps are."""

    run_key: int
    index: int
    cycle: int
    """The recorded run's steps repeat; copies of one cycle share its steps."""
    lane: int


def plan_copies(keys: Sequence[int], num_copies: int, num_cycles: int) -> list[Copy]:
    """Return which run gets which copies: most of them the first run, the rest a few others in turn."""
    others = keys[1 : 1 + MAX_OTHER_RUNS]
    num_first = max(1, round(FIRST_SHARE * num_copies)) if others else num_copies
    counts = dict.fromkeys(keys[:1], num_first)
    for item in range(num_copies - num_first):
        key = others[item % len(others)]
        counts[key] = counts.get(key, 0) + 1
    return [copy for key, count in counts.items() for copy in _of_run(key, count, num_cycles)]


def copy_trajectories(
    load: "BulkLoad", template: int, copies: Sequence[Copy], num_steps: int, *, has_texts: bool
) -> None:
    """Add the copies, with empty texts unless `has_texts`; rows after the last step are left out."""
    values = {"template": template, "num_steps": num_steps}
    with load.filling(()) as connection:
        _make_copies_table(connection, template, copies)
    for table in _TABLES:
        with load.filling([table]) as connection:
            connection.execute(text(_statement(table, has_texts=has_texts)), values)


def _of_run(run_key: int, count: int, num_cycles: int) -> list[Copy]:
    num_lanes = -(-count // num_cycles)
    return [Copy(run_key, item, item // num_lanes, item % num_lanes) for item in range(count)]


def _make_copies_table(connection: Connection, template: int, copies: Sequence[Copy]) -> None:
    span = connection.execute(
        text(
            "SELECT (SELECT max(trajectory_id) + 1 FROM trajectories WHERE run_key = :run) AS num_ids,"
            " (SELECT max(question_index) + 1 FROM questions WHERE run_key = :run) AS num_questions,"
            " (SELECT max(group_position) + 1 FROM trajectories WHERE run_key = :run) AS num_groups,"
            " (SELECT max(step) FROM steps WHERE run_key = :run) AS num_steps"
        ),
        {"run": template},
    ).one()
    connection.exec_driver_sql(
        "CREATE TEMPORARY TABLE copies (run_key INTEGER, copy_index INTEGER, cycle INTEGER, lane INTEGER,"
        " first_step INTEGER, first_id INTEGER, first_question INTEGER, first_group INTEGER)"
    )
    rows = [
        asdict(copy)
        | {
            "first_step": copy.cycle * span.num_steps,
            "first_id": copy.index * span.num_ids,
            "first_question": copy.index * span.num_questions,
            "first_group": copy.lane * span.num_groups,
        }
        for copy in copies
    ]
    connection.execute(
        text(
            "INSERT INTO copies VALUES (:run_key, :index, :cycle, :lane,"
            " :first_step, :first_id, :first_question, :first_group)"
        ),
        rows,
    )


def _statement(table: Table, *, has_texts: bool) -> str:
    """Return the statement that copies a table; columns of steps, questions, ids and groups are shifted."""
    values = {column.name: _MOVED.get(column.name, f"o.{column.name}") for column in table.columns}
    values |= _SPECIAL.get(table.name, {})
    if table is models.trajectory_texts and not has_texts:
        values["text"] = "''"
    source, conditions = f"copies AS c CROSS JOIN {table.name} AS o", ["o.run_key = :template"]
    if table is models.trajectory_texts:
        # Only the key links its rows to a trajectory.
        source += " JOIN trajectories AS t ON t.trajectory_key = o.trajectory_key"
        conditions += ["t.step + c.first_step <= :num_steps"]
    elif table is models.questions:
        conditions += ["o.question_set = 'training'", ":num_steps > 0"]
    else:
        conditions += ["o.step + c.first_step <= :num_steps"]
    if table is models.bucket_counts:
        conditions.append("c.lane = 0")
    return (
        f"INSERT INTO {table.name} ({', '.join(values)}) SELECT {', '.join(values.values())} FROM {source}"
        f" WHERE {' AND '.join(conditions)}"
    )


def _with_sentences(identity: str) -> str:
    """Return the SQL of a text with made-up sentences after it, other ones for each identity."""
    parts = [
        f"(SELECT sentence FROM sentences WHERE number = ({identity} * {7919 + 2 * item} + {item}) % {NUM_SENTENCES})"
        for item in range(_SENTENCES_PER_TEXT)
    ]
    return " || ' ' || ".join(["o.text", *parts])


_SPECIAL = {
    "trajectories": {
        "trajectory_key": _KEY,
        "num_tokens": "o.num_tokens + (o.trajectory_id * 31 + c.copy_index * 17) % 97",
        "mean_entropy": "o.mean_entropy * (1.0 + 0.2 * ((o.trajectory_id * 13 + c.copy_index * 101) % 1009) / 1009.0)",
    },
    "trajectory_texts": {
        "trajectory_key": _KEY.replace("o.trajectory_id", "t.trajectory_id"),
        "text": _with_sentences(_ID),
    },
    "buffer_changes": {"position": "o.position + 100000 * c.lane"},
    "candidates": {"position": "o.position"},
    "questions": {"question_id": "o.question_id || '-' || c.run_key || '-' || c.copy_index"},
}


def sentences(num_sentences: int = NUM_SENTENCES) -> list[str]:
    """Return sentences with words by Zipf's law: the later in the vocabulary, the rarer."""
    rng = random.Random(20260101)
    rare = ["".join(rng.choices(_SYLLABLES, k=rng.randint(2, 4))) for _ in range(_NUM_RARE_WORDS)]
    vocabulary = [*_COMMON_WORDS.split(), *rare]
    weights = [1.0 / (item + 3) for item in range(len(vocabulary))]
    made = [rng.choices(vocabulary, weights, k=rng.randint(*_SENTENCE_WORDS)) for _ in range(num_sentences)]
    return [" ".join(words).capitalize() + "." for words in made]


class BulkLoad:
    """One connection for loading; its temporary tables last as long as it does."""

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self.is_sqlite = engine.dialect.name == "sqlite"
        self.connection = connection

    @contextmanager
    def filling(self, tables: Sequence[Table]) -> Iterator[Connection]:
        """Give the connection in one transaction; on PostgreSQL the tables' keys and indexes are made at its end."""
        with self.connection.begin():
            recreate = (
                [] if self.is_sqlite else [_drop_keys_and_indexes(self.connection, table.name) for table in tables]
            )
            yield self.connection
            for statements in recreate:
                for statement in statements:
                    self.connection.exec_driver_sql(statement)


@contextmanager
def bulk_load(database: Database) -> Iterator[BulkLoad]:
    """Give a connection set up for loading; a crash of the machine during the load may damage a SQLite file."""
    engine = database.engine.execution_options(is_write=True)
    with engine.connect() as connection:
        try:
            if database.is_sqlite:
                raw = connection.connection.driver_connection
                assert raw is not None
                for setting in _SQLITE_SETTINGS:
                    raw.execute(f"PRAGMA {setting}")
            else:
                connection.exec_driver_sql("SET maintenance_work_mem = '1GB'")
                connection.commit()
            yield BulkLoad(engine, connection)
        finally:
            # The next user of the connection must not get its settings and temporary tables.
            connection.invalidate()


def _drop_keys_and_indexes(connection: Connection, name: str) -> list[str]:
    """Drop the constraints and indexes of a table and return the statements that make them again."""
    constraints = connection.execute(_CONSTRAINTS, {"name": name}).all()
    indexes = connection.execute(_INDEXES, {"name": name}).all()
    for constraint in constraints:
        connection.exec_driver_sql(f"ALTER TABLE {name} DROP CONSTRAINT {constraint.conname}")
    for index in indexes:
        connection.exec_driver_sql(f"DROP INDEX {index.indexname}")
    recreate = [f"ALTER TABLE {name} ADD CONSTRAINT {row.conname} {row.definition}" for row in reversed(constraints)]
    return recreate + [index.indexdef for index in indexes]
