"""The values of a run by name, in SQL: what lists are searched by, show as columns and are sorted by.

A name is a facet (`status`), a score (`score`, `pass@1`, `avg@8`, a benchmark), a metric's key
(`replay/num_replayed`) or a field of the specification, for which the end of its path is enough (`learning_rate`),
as it is for each setting of a recorded run. Headings of columns (`Held-out Avg@n`, `batch-pass@1`) and labels of
metrics and fields (`learning-rate`) stand for their values; case does not matter in them.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Float, String, Table, case, cast, func, literal, select, type_coerce

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.text_search import SearchError
from exgrpo.db.rows.display_names import BATCH_PASS_RATE, held_out_score
from exgrpo.db.rows.spec_fields import DEFAULT_EXPERIENCE_RATIO, RECORDED_KIND, SYMBOLS, UNKNOWN
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo_core.config import GAUSSIAN, POLICY_SHAPING
from exgrpo_core.methods.loading import CORRECTION, QUESTIONS, methods, names_of
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import METRIC_LABELS, SHARES

FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*){0,7}")
"""A field at most 8 deep: SQLite cannot parse a condition on one that is much deeper."""
_FROM_SPEC = frozenset({"model", "data", "engine", "preset"})
"""Facets whose names settings of recorded runs may have."""
_MAX_DEPTH = 8
_MAX_PLACES = 50
_SCORE = re.compile(r"(?:held-out-)?(avg|pass)@([1-9][0-9]{0,5})")
NUMBER = r"^[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
_SECTIONS = (
    "algorithm", "algorithm.strategy_settings", "optim", "model", "data", "validation", "sft", "verl", "recording",
    "resume", "sampling",
)  # fmt: skip
"""Where a field is looked for whose section is not named, after the specification itself."""
_SHORT = {"optimizer": "optim"} | {symbol: path.rpartition(".")[2] for symbol, path in SYMBOLS.items()}
_HELD_OUT = "held-out"
_HEADINGS = {label.lower().replace(" ", "-"): key for key, label in METRIC_LABELS.items()} | {
    held_out_score().lower().replace(" ", "-"): _HELD_OUT, "scores": "score",
    BATCH_PASS_RATE.lower().replace(" ", "-"): "pass@1",
}  # fmt: skip
"""The names of values by headings of columns, in lower case with hyphens."""
JOB_NAMES = {"eval": "evaluation", "judge": "judging"}
"""The names of jobs other than training."""
UNDERSTOOD = (
    "words, and conditions such as status:failed, tag:NAME, batch_size=1024, optim.learning_rate<1e-5, avg@8>0.4 or "
    "replay/num_replayed>=10; a - before one excludes"
)


class RunValue(NamedTuple):
    """One value of each run."""

    text: ColumnElement[Any] | None
    """As text; None of a score."""
    number: ColumnElement[Any] | None
    """As a number, NULL where a field's text is none; None of a facet such as the state."""
    is_share: bool = False


def facets() -> dict[str, ColumnElement[Any]]:
    """Return the texts of a run by name, but for its tags."""
    runs = models.runs
    kind = func.coalesce(runs.c.spec["kind"].as_string(), "train")
    return {
        "status": runs.c.status,
        "kind": case((kind == RECORDED_KIND, "train"), else_=kind),
        "method": method_expression(),
        "model": runs.c.spec["model"]["source"].as_string(),
        "data": runs.c.spec["data"]["source"].as_string(),
        "engine": runs.c.spec["engine"].as_string(),
        "preset": runs.c.spec["preset"].as_string(),
        "name": runs.c.name,
        "id": runs.c.run_id,
        "reason": runs.c.status_reason,
    }


def value_of(connection: Connection, name: str) -> RunValue:
    """Return the value of this name.

    Raises:
        SearchError: No run of the database has one.
    """
    heading = name.lower().replace(" ", "-")
    is_score = heading == _HELD_OUT or _SCORE.fullmatch(heading) is not None
    meant = _HEADINGS.get(heading) or (heading if is_score else heading.replace("-", "_"))
    # No field and hardly any metric has a hyphen: looking for one would read every metric.
    names = [meant, name] if is_score or ("-" in heading and heading in _HEADINGS) else [name, meant]
    value = next(filter(None, (_find(connection, wanted) for wanted in dict.fromkeys(names))), None)
    if value is None:
        raise SearchError(f"no run has a field, score or metric of this name{_near(connection, name)}", name)
    return value


def _find(connection: Connection, name: str) -> RunValue | None:
    runs = models.runs
    if name in (texts := facets()):
        recorded = _texts_at(_recorded_places(connection, {name})) if name in _FROM_SPEC else []
        return RunValue(func.coalesce(texts[name], *recorded) if recorded else texts[name], None)
    if name in {"step", "attempt"}:
        return RunValue(None, runs.c[name])
    if (score := _score(name)) is not None:
        return RunValue(None, score, is_share=True)
    if _has(connection, models.metrics.c.name == name):
        return RunValue(None, _newest_metric(name), is_share=name in SHARES)
    text = field_text(connection, name)
    if text is not None and _has(connection, select(runs.c.run_key).where(text.is_not(None)).exists()):
        return RunValue(text, case((text.regexp_match(NUMBER), cast(text, Float))))
    scores, held_out = models.benchmark_scores.c.benchmark, models.evaluations.c.question_set
    is_benchmark = _has(connection, scores == name) or _has(connection, held_out == name)
    return RunValue(None, _benchmark(name), is_share=True) if is_benchmark else None


def _has(connection: Connection, condition: ColumnElement[bool]) -> bool:
    return connection.scalar(select(literal(1)).where(condition).limit(1)) is not None


def _near(connection: Connection, name: str) -> str:
    """Return the names most like one that is unknown, of all facets and the newest run with metrics."""
    runs = models.runs
    with_metrics = select(runs.c.run_key, runs.c.spec).where(
        select(models.metrics.c.name).where(models.metrics.c.run_key == runs.c.run_key).exists()
    )
    newest = connection.execute(with_metrics.order_by(runs.c.created_at.desc()).limit(1)).first()
    known = [*facets(), "tag", "step", "attempt", "score", "pass@1", "avg@8"]
    if newest is not None:
        metrics = models.metrics
        known += [".".join(path) for path in _paths(newest.spec)]
        known += connection.scalars(select(metrics.c.name).where(metrics.c.run_key == newest.run_key).distinct())
    ends = {re.split(r"[./]", known_name)[-1]: known_name for known_name in known} | {full: full for full in known}
    near = dict.fromkeys(ends[match] for match in difflib.get_close_matches(name, ends, n=3))
    return f"; like it are {', '.join(near)}" if near else f"; understood are {UNDERSTOOD}"


def _paths(spec: Mapping[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in spec.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*before, name))
        else:
            yield (*before, name)


def field_text(connection: Connection, path: str) -> ColumnElement[Any] | None:
    """Return the text of a field of the specification; of a name without its section, of the first that has it.

    Settings that loops record may have any names, at any depth. None: no run can have the field.
    """
    given = path.split(".")
    spellings = [
        list(names) for names in dict.fromkeys((tuple(given), tuple(_SHORT.get(name, name) for name in given)))
    ]
    places = [
        [*filter(None, section.split(".")), *names]
        for names in (spellings if FIELD.fullmatch(path) else [])
        for section in ("", *(_SECTIONS if len(names) == 1 else ()))
    ]
    places += _recorded_places(connection, {".".join(names) for names in spellings})
    texts = _texts_at(places)
    return None if not texts else texts[0] if len(texts) == 1 else func.coalesce(*texts)


def _texts_at(places: Iterable[Sequence[str]]) -> list[ColumnElement[Any]]:
    texts: list[ColumnElement[Any]] = []
    for place in places:
        entry: Any = models.runs.c.spec
        for name in place:
            entry = entry[name]
        texts.append(cast(entry.as_string(), String))
    return texts


def _recorded_places(connection: Connection, names: set[str]) -> list[list[str]]:
    """Return where settings that loops recorded have these names, or names that end with them."""
    spec = models.runs.c.spec
    found = connection.scalars(select(spec["config"]).where(spec["kind"].as_string() == RECORDED_KIND))
    paths = dict.fromkeys(path for config in found if config for path in _paths(config, ("config",)))
    places = [path for path in paths if any(f".{'.'.join(path)}".endswith(f".{name}") for name in names)]
    return [[*place] for place in places if len(place) <= _MAX_DEPTH and '"' not in "".join(place)][:_MAX_PLACES]


def _newest_metric(name: str) -> ColumnElement[Any]:
    metrics = models.metrics
    query = select(type_coerce(metrics.c.value, Float)).where(
        metrics.c.run_key == models.runs.c.run_key, metrics.c.name == name
    )
    return query.order_by(metrics.c.step.desc(), metrics.c.attempt.desc()).limit(1).scalar_subquery()


def _score(name: str) -> ColumnElement[Any] | None:
    """Return a run's progress, the newest held-out score of a training run, or an evaluation's mean over benchmarks.

    `score` is the mean of as many samples as there were. What begins with `held-out` is of held-out questions only.
    """
    if name == "progress":
        runs = models.runs
        of_steps = runs.c.step * 1.0 / func.nullif(runs.c.spec["num_steps"].as_float(), 0.0)
        of_tokens = runs.c.summary["generated_tokens"].as_float() / runs.c.spec["max_generated_tokens"].as_float()
        is_done = of_steps.is_not(None) & (runs.c.status == RunStatus.FINISHED)
        done: ColumnElement[Any] = case((is_done, 1.0), (of_tokens > of_steps, of_tokens), else_=of_steps)
        return done
    match = _SCORE.fullmatch(name)
    if match is None and name not in {"score", _HELD_OUT}:
        return None
    measure, num_samples = (match.group(1), int(match.group(2))) if match else ("avg", None)
    if name == "pass@1":
        newest_batch: ColumnElement[Any] = models.runs.c.summary["last_pass_at_1"].as_float()
        return newest_batch
    held_out, scores = models.evaluations, models.benchmark_scores
    newest = _newest_evaluation(
        held_out.c.avg_at_n if measure == "avg" else held_out.c.pass_at_n,
        held_out.c.question_set == "held_out", *_of(held_out, num_samples),
    )  # fmt: skip
    if measure == "pass" or name.startswith(_HELD_OUT):
        return newest
    mean = select(func.avg(scores.c.score)).where(
        scores.c.run_key == models.runs.c.run_key, scores.c.scheme == "paper", *_of(scores, num_samples),
    )  # fmt: skip
    return func.coalesce(newest, mean.scalar_subquery())


def _of(table: Table, num_samples: int | None) -> list[ColumnElement[bool]]:
    return [] if num_samples is None else [table.c.samples_per_question == num_samples]


def _benchmark(name: str) -> ColumnElement[Any]:
    scores = models.benchmark_scores
    scored = select(scores.c.score).where(
        scores.c.run_key == models.runs.c.run_key, scores.c.scheme == "paper", scores.c.benchmark == name
    )
    during = _newest_evaluation(models.evaluations.c.avg_at_n, models.evaluations.c.question_set == name)
    return func.coalesce(scored.scalar_subquery(), during)


def _newest_evaluation(value: ColumnElement[Any], *conditions: ColumnElement[bool]) -> ColumnElement[Any]:
    table = models.evaluations
    query = select(type_coerce(value, Float)).where(table.c.run_key == models.runs.c.run_key, *conditions)
    return query.order_by(table.c.step.desc(), table.c.attempt.desc()).limit(1).scalar_subquery()


def list_values(database: Database, run_ids: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the values of these names in each of these runs by its id; a name that no run has is left out."""
    runs = models.runs
    with database.read() as connection:
        columns = {}
        for name in names:
            try:
                value = value_of(connection, name)
            except SearchError:
                continue
            columns[name] = value.number if value.text is None else value.text
        query = select(runs.c.run_id, *columns.values()).where(one_of(runs.c.run_id, run_ids))
        return {run_id: dict(zip(columns, values, strict=True)) for run_id, *values in connection.execute(query)}


def method_expression(spec: ColumnElement[Any] = models.runs.c.spec) -> ColumnElement[str]:
    """Return the short name of a specification's algorithm, or the name of another job, as an expression of SQL."""
    kind = func.coalesce(spec["kind"].as_string(), "train")
    algorithm = spec["algorithm"]
    questions = func.coalesce(algorithm["question_selection"].as_string(), GAUSSIAN)
    correction = func.coalesce(algorithm["off_policy_correction"].as_string(), POLICY_SHAPING)
    named = {name: about.title for name, about in methods().items()}
    corrections = {name: literal(named.get(name, named[GAUSSIAN])) for name in names_of(CORRECTION)}
    of_exgrpo = case(corrections, value=correction, else_=literal(named[GAUSSIAN]))
    # Other rules of the workbench are variants of ExGRPO; a method from elsewhere has the name that the setting says.
    titles = {name: literal(named[name]) if name in named else of_exgrpo for name in names_of(QUESTIONS)}
    replaying = case(titles | {GAUSSIAN: of_exgrpo}, value=questions, else_=questions)
    without_replay = [name for name, about in methods().items() if about.settings.get("experience_ratio") == 0.0]
    ratio = func.coalesce(algorithm["experience_ratio"].as_float(), DEFAULT_EXPERIENCE_RATIO)
    return case(
        *((kind == job, literal(name)) for job, name in JOB_NAMES.items()),
        (kind == RECORDED_KIND, literal(UNKNOWN)),
        (kind != "train", kind),
        (spec["is_unreadable"].as_string().is_not(None), literal(UNKNOWN)),
        (spec["sft"].as_string().is_not(None), literal("SFT")),
        (algorithm["mask_range"].as_string().is_not(None), literal("masked GRPO")),
        (questions.in_(without_replay), replaying),
        (ratio > 0.0, replaying),
        (func.coalesce(algorithm["uses_external_experience"].as_boolean(), False), literal("LUFFY")),
        (func.coalesce(algorithm["normalize_by_std"].as_boolean(), False), literal("GRPO")),
        else_=literal("Dr.GRPO"),
    )
