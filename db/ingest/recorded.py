"""Rollouts that a loop recorded a line each, as the steps and questions that tables hold.

A step may come in several parts. Its mean reward, its parts, length and entropy are metrics too, brought up to date
with each part, unless the loop records a metric of that name itself.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from zlib import crc32

from sqlalchemy import ColumnElement, Connection, Table, and_, case, delete, func, select, update

from exgrpo.db.ingest.run_summary import add_faults
from exgrpo.db.ingest.upsert import insert_new
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of, storable_text
from exgrpo.db.tables.correctness import MAX_VERDICT, is_correct_column
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.recording.lines import ANNOTATED
from exgrpo_core.sums import FOLLOWING, PASS_RATE, StepSums

Event = Mapping[str, Any]
KINDS_WITH_STEP = frozenset({"trajectory", "metrics"})


def gather(connection: Connection, run_key: int, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the events with those of recorded lines as one event a step, and one of their new questions."""
    others = [dict(event) for event in events if event["kind"] not in {*KINDS_WITH_STEP, "annotation"}]
    rollouts = [dict(event) for event in events if event["kind"] == "trajectory"]
    new_questions = _number_questions(connection, run_key, rollouts)
    steps: dict[tuple[int, int], dict[str, Any]] = {}
    for event in events:
        if event["kind"] not in KINDS_WITH_STEP:
            continue
        step = steps.setdefault((event["attempt"], event["step"]), _empty_step(event))
        if event["kind"] == "trajectory":
            step["trajectories"].append(event["trajectory"])
        else:
            step["metrics"] |= event["metrics"]
    for step in steps.values():
        _set_groups(step["trajectories"])
    questions = {"kind": "questions", "question_set": "training", "questions": new_questions}
    of_questions = [rollouts[0] | questions] if new_questions else []
    return [*others, *of_questions, *steps.values()]


def _empty_step(event: Event) -> dict[str, Any]:
    lists: dict[str, Any] = {name: [] for name in ("buckets", "buffer_events", "selections", "trajectories", "replays")}
    fields = {name: event[name] for name in ("attempt", "step", "at", "seq")}
    constants = {"kind": "step", "is_replay_open": False, "metrics": {}, "notices": [], "file": ""}
    return lists | fields | constants | {"is_part": True}


def _number_questions(connection: Connection, run_key: int, rollouts: Iterable[Event]) -> list[dict[str, Any]]:
    rows = [event["trajectory"] for event in rollouts]
    for row in rows:
        row |= {name: storable_text(row[name]) for name in ("question_id", "verdict", "recorded_id")}
    table = models.questions
    wanted = list(dict.fromkeys(row["question_id"] for row in rows))
    is_training = and_(table.c.run_key == run_key, table.c.question_set == "training")
    query = select(table.c.question_id, table.c.question_index).where(is_training, one_of(table.c.question_id, wanted))
    known = {row.question_id: row.question_index for row in connection.execute(query)}
    last = connection.scalar(select(func.max(table.c.question_index)).where(is_training))
    numbers = itertools.count(0 if last is None else last + 1)
    new = []
    for row in rows:
        if row["question_id"] not in known:
            known[row["question_id"]] = next(numbers)
            fields = {name: row[name] for name in ("question_id", "prompt_text", "answer")}
            new.append(fields | {"question_index": known[row["question_id"]], "details": {}})
        row["question_index"] = known[row["question_id"]]
    return new


def _set_groups(rows: Iterable[dict[str, Any]]) -> None:
    """Set each trajectory's group: a number of its question, or of the name that the loop gives the group.

    Of a step that comes in parts nobody knows the places in a group; the number of a trajectory has the same order.
    """
    for row in rows:
        group = row["group"]
        is_named = group is not None and group != row["question_id"]
        position = crc32(group.encode(errors="surrogatepass")) >> 1 if is_named else row["question_index"]
        row |= {"group_position": position, "group_slot": row["trajectory_id"]}


def complete(
    connection: Connection, run_key: int, steps: Iterable[Event], events: Sequence[Event], *, has_left_steps: bool
) -> None:
    """After the rows of `gather` are inserted, set what follows from all of a step, and fold annotations in.

    After steps that a later attempt repeats have left, others may have a pass rate again.
    """
    if has_left_steps:
        _put_all_metrics(connection, run_key)
    for step in steps:
        if "is_part" in step:
            _complete_step(connection, run_key, step)
    annotations = [event for event in events if event["kind"] == "annotation"]
    changed = [_annotate(connection, run_key, event) for event in annotations]
    for place in sorted({place for place in changed if place is not None}):
        _sum_again(connection, run_key, *place)
    of_none = [event["seq"] for event, place in zip(annotations, changed, strict=True) if place is None]
    if of_none:
        add_faults(connection, run_key, [Fault(FaultKind.NO_TRAJECTORY, "", (len(of_none), min(of_none)))])


def _complete_step(connection: Connection, run_key: int, step: Event) -> None:
    is_step = _is_step(models.steps, run_key, step["attempt"], step["step"])
    before = connection.execute(select(models.steps.c.sums, models.steps.c.is_finite).where(is_step)).one()
    sums = StepSums.of_record(before.sums)
    if sums.num_rows and step["trajectories"]:
        _rate_groups(connection, run_key, step)
    sums.add(step["trajectories"], step["metrics"])
    is_finite = before.is_finite and all(map(math.isfinite, step["metrics"].values()))
    connection.execute(update(models.steps).where(is_step).values(sums=asdict(sums), is_finite=is_finite))
    _put_metrics(connection, run_key, step["attempt"], step["step"], sums, step["metrics"])


def _put_metrics(
    connection: Connection, run_key: int, attempt: int, step: int, sums: StepSums, logged: Mapping[str, float]
) -> None:
    """Replace what follows from a step's trajectories, and metrics of which a later value came."""
    table = models.metrics
    is_step = _is_step(table, run_key, attempt, step)
    following = sums.metrics()
    if PASS_RATE in following and _has_other_rewards(connection, run_key):
        del following[PASS_RATE]
    names = {storable_text(name): value for name, value in (following | dict(logged)).items()}
    replaced = [*(FOLLOWING - {*sums.logged}), *names]
    connection.execute(delete(table).where(is_step, one_of(table.c.name, replaced)))
    key = {"run_key": run_key, "attempt": attempt, "step": step}
    insert_new(connection, table, [key | {"name": name, "value": value} for name, value in names.items()])
    if sums.num_unknown and PASS_RATE not in sums.logged:
        is_of_run = and_(table.c.run_key == run_key, table.c.name == PASS_RATE)
        connection.execute(delete(table).where(is_of_run))


def _put_all_metrics(connection: Connection, run_key: int) -> None:
    steps = models.steps
    query = select(steps.c.attempt, steps.c.step, steps.c.sums)
    for attempt, step, sums in connection.execute(query.where(steps.c.run_key == run_key, steps.c.sums.is_not(None))):
        _put_metrics(connection, run_key, attempt, step, StepSums.of_record(sums), {})


def _has_other_rewards(connection: Connection, run_key: int) -> bool:
    """Whether a reward of the run is on another scale than right and wrong: then 0 and 1 next to it are, too."""
    sums = models.steps.c.sums
    query = select(models.steps.c.step).where(models.steps.c.run_key == run_key, sums["num_unknown"].as_integer() > 0)
    return connection.execute(query.limit(1)).first() is not None


def _rate_groups(connection: Connection, run_key: int, step: Event) -> None:
    """Compute the share of correct ones again, of groups of which a part came before."""
    table = models.trajectories
    other = table.alias()
    in_group = (
        other.c[name] == table.c[name] for name in ("run_key", "question_index", "step", "attempt", "group_position")
    )
    is_correct = is_correct_column(other)
    rate = select(func.avg(case((is_correct, 1.0), (~is_correct, 0.0)))).where(*in_group)
    is_group = one_of(table.c.question_index, {row["question_index"] for row in step["trajectories"]})
    is_step = _is_step(table, run_key, step["attempt"], step["step"])
    connection.execute(update(table).where(is_step, is_group).values(correctness_rate=rate.scalar_subquery()))


def _is_step(table: Table, run_key: int, attempt: int, step: int) -> ColumnElement[bool]:
    return and_(table.c.run_key == run_key, table.c.step == step, table.c.attempt == attempt)


def _annotate(connection: Connection, run_key: int, event: Event) -> tuple[int, int] | None:
    """Fold what was learned later into a trajectory's row; return its attempt and step, None if there is none."""
    table = models.trajectories
    has_id = and_(table.c.run_key == run_key, table.c.recorded_id == storable_text(event["id"]))
    found = select(table).where(has_id).order_by(table.c.attempt != event["attempt"], table.c.attempt.desc()).limit(1)
    in_step = found.where(table.c.step == event["step"], table.c.attempt == event["attempt"])
    row = connection.execute(in_step).first() or connection.execute(found).first()
    if row is None:
        return None
    is_it = table.c.trajectory_key == row.trajectory_key
    facts = {name: event["facts"][name] for name in ANNOTATED if event["facts"].get(name) is not None}
    facts |= {"verdict": storable_text(str(facts["verdict"]))[:MAX_VERDICT]} if "verdict" in facts else {}
    others = {name: value for name, value in event["facts"].items() if name not in {*ANNOTATED, "mark", "comment"}}
    connection.execute(update(table).where(is_it).values(extra=(row.extra or {}) | others or None, **facts))
    if isinstance(mark := event["facts"].get("mark"), str):
        key = {"run_key": run_key, "attempt": row.attempt, "trajectory_id": row.trajectory_id}
        texts = {"mark": storable_text(mark)[:80], "comment": storable_text(str(event["facts"].get("comment", "")))}
        insert_new(connection, models.trajectory_marks, [key | texts | {"at": datetime.fromisoformat(event["at"])}])
    return row.attempt, row.step


def _sum_again(connection: Connection, run_key: int, attempt: int, step: int) -> None:
    """Compute what follows from a step's trajectories from their rows, since some were annotated."""
    table, steps = models.trajectories, models.steps
    is_step = _is_step(table, run_key, attempt, step)
    rows = [dict(row) for row in connection.execute(select(table).where(is_step)).mappings()]
    _rate_groups(connection, run_key, {"attempt": attempt, "step": step, "trajectories": rows})
    before = connection.scalar(select(steps.c.sums).where(_is_step(steps, run_key, attempt, step)))
    sums = StepSums(logged=StepSums.of_record(before).logged)
    sums.add(rows, {})
    connection.execute(update(steps).where(_is_step(steps, run_key, attempt, step)).values(sums=asdict(sums)))
    _put_metrics(connection, run_key, attempt, step, sums, {})
