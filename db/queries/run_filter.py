"""Which runs to list: words, states and archived or not, as conditions in SQL."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select

from db.queries.run_fields import field_condition
from db.queries.run_methods import method_expression
from db.tables import models


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; the defaults are all that are not archived."""

    words: str = ""
    """Every word must be in the name, id, method, model, data set or a tag; case does not matter.

    A word such as `seed=3` or `optim.learning_rate<1e-5` is a condition on a field of the specification.
    """
    statuses: tuple[str, ...] = ()
    """States to list; none lists all."""
    is_archived: bool | None = False
    """Whether archived runs are listed, or others; None lists both."""
    kinds: tuple[str, ...] = ()
    """Kinds of jobs to list (train, eval, judge); none lists all."""
    ended_after: datetime | None = None
    """Runs that ended later, or have not ended; None lists all."""


def conditions(where: RunFilter) -> list[ColumnElement[bool]]:
    """Return the conditions on a run's row."""
    runs = models.runs
    # PostgreSQL takes no text with a NUL in it.
    words = where.words.replace("\0", " ").split()
    wanted = [_holds_word_or_field(word) for word in words]
    if where.statuses:
        wanted.append(runs.c.status.in_(where.statuses))
    if where.kinds:
        wanted.append(func.coalesce(runs.c.spec["kind"].as_string(), "train").in_(where.kinds))
    if where.is_archived is not None:
        wanted.append(runs.c.is_archived if where.is_archived else ~runs.c.is_archived)
    if where.ended_after is not None:
        wanted.append(or_(runs.c.ended_at.is_(None), runs.c.ended_at > where.ended_after))
    return wanted


def _holds_word_or_field(word: str) -> ColumnElement[bool]:
    """Return that a run has the field's value that a word like `seed=3` asks for, or holds the word itself."""
    is_held, has_field = _holds_word(word.lower()), field_condition(word)
    return is_held if has_field is None else or_(has_field, is_held)


def _holds_word(word: str) -> ColumnElement[bool]:
    runs, tags = models.runs, models.tags
    sources = [runs.c.spec[part]["source"].as_string() for part in ("model", "data")]
    texts = [runs.c.name, runs.c.run_id, method_expression(), *sources]
    has_tag = select(tags.c.tag).where(tags.c.run_key == runs.c.run_key, _contains(tags.c.tag, word)).exists()
    return or_(*(_contains(text, word) for text in texts), has_tag)


def _contains(text: ColumnElement[str], word: str) -> ColumnElement[bool]:
    return func.coalesce(func.lower(text), "").contains(word, autoescape=True)
