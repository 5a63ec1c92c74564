"""Lists and counts under any mixture of facets, against every row looked at one by one."""

import random
from dataclasses import replace

import pytest
from sqlalchemy import select

from exgrpo.db.queries import trajectory_list
from exgrpo.db.rows.trajectories import QuestionOrder, QuestionSortKey, TrajectoryFacets
from exgrpo.db.tables import models
from exgrpo.jobs.tasks.grading.reward_function import Grade
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import BufferEvent, BufferEventKind
from tests.db.conftest import KINDS
from tests.db.recorded_runs import ingest_run, new_run, record_attempt

VERDICTS = tuple(Grade)
WORDS = ("", "", "", "trajectory", "step3 says", "number17", "absent")


def vary(report):
    """Give a report every verdict, code marks and stored and replayed trajectories, differently in each step."""
    rng = random.Random(report.step)
    report.buffer_events = [event for event in report.buffer_events if event.kind is not BufferEventKind.INSERTED]
    for group in report.groups:
        if group.has_replay:
            earlier = group.replays[0].experience._replace(trajectory_id=(report.step - 2) * 12 + rng.randrange(6))
            group.replays = (replace(group.replays[0], experience=earlier),)
        for item in group.trajectories:
            item.has_code = rng.choice([None, True, False])
            item.is_valid = rng.choice([None, True, False])
            if item.reward < 1.0:
                item.verdict = rng.choice(VERDICTS[1:])
            elif rng.random() < 0.7:
                bucket = rng.randint(1, 3)
                kind = BufferEventKind.INSERTED
                report.buffer_events.append(BufferEvent(kind, item.question_index, item.trajectory_id, bucket, bucket))


@pytest.fixture(scope="module", params=KINDS)
def listed(request, new_database, tmp_path_factory):
    """A database with two runs, one resumed so that steps 7 to 9 were done twice, and all that counts in it."""
    folder = tmp_path_factory.mktemp("facets")
    database = new_database(request.param, folder)
    for seed, name in enumerate(("first", "second")):
        run = new_run(folder, run_id=name)
        record_attempt(run, range(1, 10), seed=seed, change=vary)
        if name == "first":
            record_attempt(run, range(7, 13), seed=5, end=RunStatus.FINISHED, change=vary)
        ingest_run(database, run)
    yield database, everything(database)
    database.close()


def everything(database):
    trajectories, texts, runs = models.trajectories, models.trajectory_texts, models.runs
    changes, replays = models.buffer_changes, models.replays
    key_names = ("run_key", "trajectory_id")
    with database.read() as connection:
        query = (
            select(trajectories, runs.c.run_id, texts.c.text)
            .join_from(trajectories, runs)
            .join(texts, texts.c.trajectory_key == trajectories.c.trajectory_key)
        )
        rows = [dict(row) for row in connection.execute(query).mappings()]
        stored = select(changes).where(changes.c.kind == "inserted")
        buckets = {
            tuple(row[name] for name in key_names): row["bucket_to"] for row in connection.execute(stored).mappings()
        }
        again = select(replays.c.run_key, replays.c.trajectory_id)
        replayed = {tuple(row) for row in connection.execute(again)}
    for row in rows:
        key = tuple(row[name] for name in key_names)
        row |= {"bucket": buckets.get(key), "is_replayed": key in replayed, "is_correct": row["reward"] >= 1.0}
    return sorted(rows, key=lambda row: -row["trajectory_key"])


def fits(row, facets):
    words = facets.words.split()
    exact = ("run_id", "question_index", "bucket", "verdict", "is_correct", "is_replayed", "has_code", "is_valid")
    if facets.has_tool_errors is not None:  # no conversations here
        return False
    ranges = [
        (row["step"], facets.step_from, facets.step_to),
        (row["mean_entropy"], facets.entropy_from, facets.entropy_to),
        (row["reward"], facets.reward_from, facets.reward_to),
        (row["num_tokens"], facets.tokens_from, facets.tokens_to),
    ]
    return (
        all(word in row["text"].replace("\\", " ").replace("{", " ").split() for word in words)
        and all(getattr(facets, name) in {None, row[name]} for name in exact)
        and all((low is None or value >= low) and (high is None or value <= high) for value, low, high in ranges)
    )


def random_facets(rng):
    choices = {
        "run_id": ("first", "first", "second"), "words": WORDS, "step_from": (2, 6, 8), "step_to": (5, 8, 11),
        "question_index": range(16), "bucket": (1, 2, 3, 7), "is_correct": (True, False), "verdict": VERDICTS,
        "is_replayed": (True, False), "has_code": (True, False), "is_valid": (True, False), "entropy_from": (0.3, 0.5),
        "entropy_to": (0.5, 0.7), "reward_from": (0.0, 0.5), "reward_to": (0.0, 0.5), "tokens_from": (3, 6),
        "tokens_to": (6, 9),
    }  # fmt: skip
    names = rng.sample(list(choices), rng.randint(0, 5))
    return TrajectoryFacets(**{name: rng.choice(tuple(choices[name])) for name in names})


@pytest.mark.parametrize("seed", range(16))
def test_any_mixture_of_facets_lists_and_counts_what_fits(listed, seed):
    database, rows = listed
    facets = random_facets(random.Random(seed))
    expected = [row["trajectory_key"] for row in rows if fits(row, facets)]
    snippets = trajectory_list.list_snippets(database, facets, limit=1000)
    assert [row.trajectory_key for row in snippets] == expected
    assert trajectory_list.count_trajectories(database, facets) == len(expected)
    middle = expected[len(expected) // 2] if expected else None
    page = trajectory_list.list_snippets(database, facets, before=middle, limit=3)
    assert [row.trajectory_key for row in page] == [key for key in expected if middle is None or key < middle][:3]
    for name, counts in trajectory_list.count_facets(database, facets).items():
        # A page offers verdicts and correctness in one choice, which replaces both.
        chosen_together = ("is_correct", "verdict") if name in {"is_correct", "verdict"} else (name,)
        without = replace(facets, **dict.fromkeys(chosen_together))
        num_unknown = counts.pop(None)
        assert num_unknown == sum(fits(row, without) for row in rows) - sum(counts.values())
        for value, count in counts.items():
            other = replace(without, **{name: value})
            assert count == sum(fits(row, other) for row in rows), (name, value)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_unsolved", [False, True])
def test_questions_of_what_fits_have_counts_of_all_their_rollouts_and_replays(listed, seed, is_unsolved):
    database, rows = listed
    facets = replace(random_facets(random.Random(seed)), run_id="first")
    of_run = [row for row in rows if row["run_id"] == "first"]
    with database.read() as connection:
        replays = models.replays
        query = (
            select(replays.c.question_index, replays.c.step).join(models.runs).where(models.runs.c.run_id == "first")
        )
        replayed = connection.execute(query).all()
    expected = []
    for question in sorted({row["question_index"] for row in of_run if fits(row, facets)}):
        rollouts = [row for row in of_run if row["question_index"] == question]
        steps = [step for index, step in replayed if index == question]
        num_correct = sum(row["is_correct"] for row in rollouts)
        if not (is_unsolved and num_correct):
            num_steps = len({row["step"] for row in rollouts})
            expected.append((question, num_steps, len(rollouts), num_correct, len(steps), max(steps, default=None)))

    def listed_by(key, *, is_descending=True, limit=None):
        order = QuestionOrder(key, is_descending)
        found = trajectory_list.list_questions(
            database, facets, is_unsolved=is_unsolved, order=order, limit=limit
        )  # fmt: skip
        names = ("question_index", "num_steps", "num_rollouts", "num_correct", "num_replays", "last_replayed_step")
        return [tuple(getattr(row, name) for name in names) for row in found]

    for place, key in enumerate(QuestionSortKey):
        assert listed_by(key) == sorted(expected, key=lambda row, place=place: -row[place])
        assert (
            listed_by(key, is_descending=False, limit=3)
            == sorted(expected, key=lambda row, place=place: row[place])[:3]
        )
    assert trajectory_list.count_questions(database, facets, is_unsolved=is_unsolved) == len(expected)


def test_the_rows_have_every_kind_of_fact(listed):
    _, rows = listed
    assert {row["attempt"] for row in rows} == {1, 2}
    assert {row["verdict"] for row in rows} == set(VERDICTS)
    assert {row["is_replayed"] for row in rows} == {True, False}
    assert {row["bucket"] for row in rows} == {None, 1, 2, 3}


def test_what_is_remembered_of_a_run_follows_what_comes_in(database, tmp_path):
    run = new_run(tmp_path, run_id="first")
    where = [TrajectoryFacets(run_id="first"), TrajectoryFacets(run_id="first", words="trajectory", is_replayed=True)]
    for steps, seed in ((range(1, 5), 0), (range(3, 7), 1), (range(2, 3), 2)):
        record_attempt(run, steps, seed=seed, change=vary)
        ingest_run(database, run)
        rows = everything(database)
        for facets in where:
            expected = [row["trajectory_key"] for row in rows if fits(row, facets)]
            snippets = trajectory_list.list_snippets(database, facets, limit=1000)
            assert [row.trajectory_key for row in snippets] == expected
            assert trajectory_list.count_facets(database, facets)["verdict"]["correct"] == sum(
                fits(row, replace(facets, verdict="correct")) for row in rows
            )
