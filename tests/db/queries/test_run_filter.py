import random
import re
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import insert, select, update

from exgrpo.db.ingest import annotations, events
from exgrpo.db.queries import runs
from exgrpo.db.queries.run_filter import RunFilter, RunOrder, RunSortKey
from exgrpo.db.queries.run_values import list_values, method_expression
from exgrpo.db.queries.runs import list_run_names
from exgrpo.db.queries.text_search import MAX_CHARACTERS, MAX_WORDS, SearchError, split_words
from exgrpo.db.queries.trajectory_list import list_snippets
from exgrpo.db.rows.spec_fields import UNREADABLE_SPEC
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.db.tables import models
from exgrpo.jobs.specs.train import load_preset
from tests.db.conftest import KINDS

BORN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PRESETS = ("paper-exgrpo", "chains-exgrpo", "paper-on-policy", "chains-grpo", "chains-luffy")


def register(database, run_id, name="a run", spec=None):
    info = {"run_id": run_id, "name": name, "created_at": BORN.isoformat()}
    events.register_run(database, info, spec or load_preset("chains-exgrpo").model_dump(mode="json"))


def ids(database, *arguments, **options):
    return [row.run_id for row in runs.list_runs(database, *arguments, **options)]


def by_pages(database, order, size=2):
    seen = []
    while page := runs.list_runs(database, order=order, after=seen[-1] if seen else None, limit=size):
        seen += [row.run_id for row in page]
    return seen


def shared(fill):
    """A database of each kind with these runs for all tests of the file that only read."""

    @pytest.fixture(scope="module", params=KINDS)
    def made(request, new_database, tmp_path_factory):
        database = new_database(request.param, tmp_path_factory.mktemp("runs"))
        fill(database)
        yield database
        database.close()

    return made


def fill(database):
    """Four runs, all born in the same second, listed from `d` to `a`."""
    register(database, "a", "plain")
    register(database, "b", "Second 100% run")
    register(database, "c", "100 percent", load_preset("chains-on-policy").model_dump(mode="json"))
    register(database, "d", "an evaluation", {"kind": "eval", "model": {"source": "Org/Model_7B"}})
    annotations.annotate(database, "tags", "a", {"tag": "Keep me"})
    annotations.change_run(database, "b", is_archived=True)
    events.set_status(database, "a", "failed")


filled = shared(fill)


def test_a_run_is_found_by_the_words_of_its_notes(database):
    fill(database)
    annotations.annotate(database, "notes", "c", {"at": BORN, "text": "Loses at step 30: temperature 0.9 next"})
    for words, found in (("temperature loses", ["c"]), ("-temperature", ["d", "a"]), ("percent loses", ["c"])):
        assert [row.run_id for row in runs.list_runs(database, RunFilter(words))] == found


def test_runs_are_sorted_by_pages_either_way_and_unknown_values_come_last(database):
    fill(database)
    values = {
        "a": {"started_at": BORN, "step": 25, "summary": {"last_pass_at_1": 0.75}},
        "c": {"started_at": BORN + timedelta(hours=1), "step": 5, "summary": {"last_pass_at_1": 0.1}},
        "d": {"status": "finished"},
    }
    for hours, (run_id, columns) in enumerate(values.items()):
        change = update(models.runs).where(models.runs.c.run_id == run_id)
        change = change.values(created_at=BORN + timedelta(hours=hours), **columns)
        database.write(lambda connection, change=change: connection.execute(change))
    for key, known, unknown in (
        ("created", "acd", ""), ("started", "ac", "d"), ("name", "cda", ""), ("state", "cad", ""),
        ("method", "cda", ""), ("progress", "ca", "d"), ("pass_at_1", "ca", "d"), ("avg_at_n", "", "dca"),
    ):  # fmt: skip
        for size in (1, 2, 10):
            assert by_pages(database, RunOrder(RunSortKey(key), is_descending=False), size) == [*known, *unknown]
            assert by_pages(database, RunOrder(RunSortKey(key)), size) == [*known[::-1], *unknown]


def test_progress_is_that_of_the_steps_or_of_the_tokens_that_end_the_run_and_whole_at_its_end(database):
    spec = load_preset("chains-exgrpo").model_dump(mode="json") | {"num_steps": 1000}
    wanted = {}
    for budget, tokens, status, progress in (
        (None, 60.0, "running", 0.05), (300, 100.0, "running", 1 / 3), (3000, 100.0, "stopped", 0.05),
        (300, None, "running", 0.05), (300, 301.0, "finished", 1.0), (None, 60.0, "finished", 1.0),
    ):  # fmt: skip
        run_id = f"run-{len(wanted)}"
        wanted[run_id] = {"progress": pytest.approx(progress)}
        register(database, run_id, spec=spec | {"max_generated_tokens": budget})
        change = update(models.runs).where(models.runs.c.run_id == run_id)
        change = change.values(step=50, status=status, summary={"generated_tokens": tokens})
        database.write(lambda connection, change=change: connection.execute(change))
    assert list_values(database, list(wanted), ["progress"]) == wanted


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ["d", "c", "a"]), ("PLAIN", ["a"]), ("chains exgrpo", ["a"]), ("dr.grpo", ["c"]), ("grpo", ["c", "a"]),
        ("evaluation org/model", ["d"]), ("model_7b", ["d"]), ("model-7b", []), ("100%", []), ("%", []),
        ("keep plain", ["a"]), ("keep percent", []),
    ],
)  # fmt: skip
def test_every_word_must_stand_somewhere_in_the_run(filled, words, expected):
    assert ids(filled, RunFilter(words=words)) == expected


def test_states_and_archived_runs_are_chosen(filled):
    assert ids(filled, RunFilter(statuses=("failed", "lost"))) == ["a"]
    assert ids(filled, RunFilter(is_archived=True)) == ["b"]
    assert ids(filled, RunFilter(is_archived=None, words="100")) == ["c", "b"]
    archived = [row.is_archived for row in runs.list_runs(filled, RunFilter(is_archived=None))]
    assert archived == [False, False, True, False]


def test_counts_follow_the_filter(filled):
    assert runs.count_runs(filled) == {"queued": 2, "failed": 1}
    assert runs.count_runs(filled, RunFilter(is_archived=True)) == {"queued": 1}
    assert runs.count_runs(filled, RunFilter(words="grpo")) == {"queued": 1, "failed": 1}


NAMES = [
    "sweep 1", "Sweep 2", "sweep 10", "SWEEP 100", "sweep 1000", "sweep 99999999999999999999", "lr 0.05", "LR 0.1",
    "lr 0.25", "lr 0.5", "lr 2", "lr 10.5", "a_b", "a b", "a-b", "A.b", "äpfel 2", "Äpfel 10", "step 007", "step 8",
    "漢字 9", "漢字 10", "", "9", "10", "1e3",
]  # fmt: skip


def by_hand(name):
    """A name in lower case, each number as such; a decimal point begins digits that are compared one by one."""
    parts = re.findall(r"[0-9]+(?:\.[0-9]+)?|[^0-9]", name.lower())
    return [("0", Decimal(part)) if part[0].isdigit() else (part, 0) for part in parts]


def test_names_are_sorted_without_case_and_with_numbers_as_numbers_on_both_databases(database):
    shuffled = random.Random(0).sample(NAMES, len(NAMES))
    for number, name in enumerate(shuffled):
        register(database, f"run-{number:02}", name)
    expected = [f"run-{shuffled.index(name):02}" for name in sorted(NAMES, key=by_hand)]
    for size in (3, 100):
        assert by_pages(database, RunOrder(RunSortKey.NAME, is_descending=False), size) == expected
        assert by_pages(database, RunOrder(RunSortKey.NAME), size) == expected[::-1]


@pytest.mark.parametrize(
    "rising",
    [
        [1e-6, 0.5, 3, 20], [-5, -0.5, 0, 1e3], ["model-2", "Model-7", "model-10"], ["a", "B", "c", "Z"],
        ["1", "2", "10", "none"], ["0.05", "0.25", "0.5", "x"],
    ],
)  # fmt: skip
def test_runs_are_sorted_by_a_setting_of_numbers_or_words(database, rising):
    order = random.Random(1).sample(range(len(rising)), len(rising))
    for place in order:
        register(database, f"run-{place}", spec={"kind": "recorded", "config": {"mine": rising[place]}})
    register(database, "run-without", spec={"kind": "recorded", "config": {}})
    expected = [f"run-{place}" for place in range(len(rising))]
    assert by_pages(database, RunOrder("config.mine", is_descending=False)) == [*expected, "run-without"]
    assert by_pages(database, RunOrder("config.mine")) == [*expected[::-1], "run-without"]


def test_names_are_those_of_the_newest_runs_that_fit(database):
    fill(database)
    assert list_run_names(database, RunFilter(kinds=("train",))) == [("c", "100 percent", 0), ("a", "plain", 0)]
    assert list_run_names(database, RunFilter(words="grpo"), limit=1) == [("c", "100 percent", 0)]
    began = update(models.runs).where(models.runs.c.run_id == "a").values(step=7)
    database.write(lambda connection: connection.execute(began))
    assert list_run_names(database, RunFilter(), has_steps=True) == [("a", "plain", 7)]


def fill_to_compare(database):
    """Two training runs that differ in fields, scores and metrics."""
    spec = load_preset("chains-exgrpo").model_dump(mode="json")
    for run_id, seed, rate in (("three", 3, 0.002), ("seven", 7, 1e-6)):
        changes = {"optim": {"learning_rate": rate}, "algorithm": spec["algorithm"] | {"normalize_by_std": seed == 3}}
        register(database, run_id, spec=spec | {"seed": seed} | changes)
    annotations.annotate(database, "tags", "three", {"tag": "Keep me"})
    events.set_status(database, "three", "failed")

    def add_values(connection):
        keys = dict(connection.execute(select(models.runs.c.run_id, models.runs.c.run_key)).all())
        connection.execute(update(models.runs).where(models.runs.c.run_id == "three").values(
            summary={"last_pass_at_1": 0.75}
        ))  # fmt: skip
        scored = {"step": 2, "attempt": 1, "at": BORN, "samples_per_question": 8, "question_ids": [], "num_correct": []}
        for run_id, number, average, of_all in (("three", 12.0, 0.5, 0.9), ("seven", 3.0, 0.25, 0.5)):
            for step, value in ((1, 100.0), (2, number)):
                key = {"run_key": keys[run_id], "step": step, "attempt": 1}
                connection.execute(insert(models.metrics).values(name="replay/num_replayed", value=value, **key))
            row = {"run_key": keys[run_id], "question_set": "held_out", "avg_at_n": average, "pass_at_n": of_all}
            connection.execute(insert(models.evaluations).values(**row, **scored))
        row = {"run_key": keys["seven"], "question_set": "math500", "avg_at_n": 0.75, "pass_at_n": 0.75}
        connection.execute(insert(models.evaluations).values(**row, **scored | {"samples_per_question": 1}))

    database.write(add_values)


compared = shared(fill_to_compare)


def test_every_method_and_job_has_its_name(database):
    specs = {name: load_preset(name).model_dump(mode="json") for name in PRESETS}
    mask = {"low": 0.0, "high": 0.25, "includes_low": False, "includes_high": True}
    on_policy = specs["paper-on-policy"]
    specs["masked"] = on_policy | {"algorithm": on_policy["algorithm"] | {"mask_range": mask}}
    specs |= {"bare": {}, "eval": {"kind": "eval"}, "judge": {"kind": "judge"}, "other": {"kind": "other"}}
    specs |= {"unreadable": UNREADABLE_SPEC, "training": {**UNREADABLE_SPEC, "kind": "train"}}
    for run_id, spec in specs.items():
        register(database, run_id, spec=spec)
    with database.read() as connection:
        named = dict(connection.execute(select(models.runs.c.run_id, method_expression())).all())
    assert [named[name] for name in PRESETS] == ["ExGRPO", "ExGRPO", "Dr.GRPO", "GRPO", "LUFFY"]
    others = {"masked": "masked GRPO", "eval": "evaluation", "judge": "judging", "other": "other", "bare": "ExGRPO"}
    others |= {"unreadable": "unreadable", "training": "unknown"}
    assert {name: named[name] for name in others} == others


REPLAYING = {
    "gaussian": ("ExGRPO", {}), "uniform": ("ExGRPO", {"question_selection": "uniform"}),
    "fresh_per": ("FreshPER", {"question_selection": "fresh_per"}), "m2po": ("M2PO", {"off_policy_correction": "m2po"}),
    "queue": ("FIFO replay", {"question_selection": "fifo", "off_policy_correction": "m2po"}),
    "dapo": ("DAPO", {"question_selection": "dapo", "experience_ratio": 0.0}),
    "unused": ("Dr.GRPO", {"question_selection": "fifo", "experience_ratio": 0.0}),
    "own": ("mine:HardestFirst", {"question_selection": "mine:HardestFirst"}),
}  # fmt: skip


def test_a_run_that_replays_has_its_method_s_title_and_is_found_by_it(database):
    base = load_preset("chains-exgrpo").model_dump(mode="json")
    for run_id, (_, changes) in REPLAYING.items():
        register(database, run_id, spec=base | {"algorithm": base["algorithm"] | changes})
    rows = runs.list_runs(database, RunFilter())
    assert {row.run_id: row.method for row in rows} == {name: title for name, (title, _) in REPLAYING.items()}
    for words, found in {
        "method:m2po": {"m2po"},
        'method:"fifo replay"': {"queue"},
        "method:freshper": {"fresh_per"},
        "method:exgrpo": {"gaussian", "uniform"},
        "FreshPER": {"fresh_per"},
        "method:hardestfirst": {"own"},
    }.items():
        assert {row.run_id for row in runs.list_runs(database, RunFilter(words=words))} == found, words


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("seed=3", ["three"]), ("seed!=3", ["seven"]), ("seed>=3", ["seven", "three"]),
        ("optim.learning_rate<1e-5", ["seven"]), ("optim.learning_rate=1e-6", ["seven"]),
        ("algorithm.normalize_by_std=true", ["three"]), ("learning_rate<1e-5", ["seven"]), ("lr>1e-5", ["three"]),
        ("batch_size=16 -seed=3", ["seven"]), ("-seed=3 -seed=7", []), ("batch_size>16", []),
        ("status:failed", ["three"]), ("-state:failed", ["seven"]),
        ("method:exgrpo engine:embedded kind:training preset=chains-exgrpo", ["seven", "three"]),
        ("tag:keep", ["three"]), ("tag=keep", []), ('"keep me"', ["three"]), ('tag="Keep me"', ["three"]),
        ('"keep m', ["three"]), ("-tag:keep", ["seven"]), ("avg@8>0.4", ["three"]), ("avg@8<0.4", ["seven"]),
        ("avg@4>0", []), ("score>0.4", ["three"]), ("pass@8>=0.9", ["three"]), ("pass@1>0.3", ["three"]),
        ("replay/num_replayed>=10", ["three"]), ("replay/num_replayed!=12", ["seven"]), ("math500>0.5", ["seven"]),
        ('"pip:llm"', []), ("held-out>0.4", ["three"]), ("Held-out>40%", ["three"]), ("avg@8>=25%", ["seven", "three"]),
        ("avg@8=50%", ["three"]), ('"Held-out Avg@8"<40%', ["seven"]), ('"Held-out Avg@n"<40%', ["seven"]),
        ('"Batch Pass@1">30%', ["three"]), ("Replayed-trajectories>=10", ["three"]),
        ('"learning rate"<1e-5', ["seven"]), ("mu=0.5", ["seven", "three"]), ("K>8", []), ("-rho>0.4", []),
        ("sigma>0", ["seven", "three"]), ("-State:failed", ["seven"]), ("math500>50%", ["seven"]),
        ("Progress<50%", ["seven", "three"]),
    ],
)  # fmt: skip
def test_a_word_may_be_a_condition_on_a_field_score_or_metric(compared, words, wanted):
    assert sorted(ids(compared, RunFilter(words))) == wanted


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("batchsize=16", "batchsize"), ("no.such=1", "no.such"), ("ok replay/nothing>1", "replay/nothing"),
        ("lr>many", "lr>many"), ("name>5", "name>5"), ("status:broken", "status:broken"), ("kind:evals", "kind:evals"),
        ("tag>5", "tag"), ("statsu:failed", "statsu"), ("nonsense:1", "nonsense"), ("avg@8=good", "avg@8"),
        ("lr<", "lr<"), ("held-out>90", "held-out"), ("pass@8>200%", "pass@8"),
        ('"no such column">1', "no such column"), ("Time-left<5", "Time-left"), ("<1e-5", "<1e-5"),
    ],
)  # fmt: skip
def test_a_condition_that_cannot_be_read_is_refused_by_name(compared, words, field):
    with pytest.raises(SearchError) as refusal:
        ids(compared, RunFilter(words))
    assert refusal.value.fields == (field,)


def test_a_setting_that_only_a_method_knows_is_found_by_its_name(database):
    for run_id, half_life in (("short", 2.0), ("long", 20.0)):
        settings = {"question_selection": "mine:Own", "strategy_settings": {"half_life": half_life}}
        register(database, run_id, spec={"kind": "train", "algorithm": settings})
    for words in ("half_life=20", "half_life>=20", '"half life">2', "algorithm.strategy_settings.half_life=20.0"):
        assert ids(database, RunFilter(words)) == ["long"], words


def test_a_name_that_is_nearly_right_is_offered(database):
    fill_to_compare(database)
    register(database, "newest", spec={"kind": "eval"})  # has no metrics
    for typed, offered in (("batchsize", "algorithm.batch_size"), ("num_replayed", "replay/num_replayed")):
        with pytest.raises(SearchError) as refusal:
            runs.count_runs(database, RunFilter(f"{typed}=16"))
        assert offered in str(refusal.value)


def test_runs_are_sorted_by_a_metric_and_a_field(compared):
    for key in ("replay/num_replayed", "learning_rate", "avg@8"):
        assert by_pages(compared, RunOrder(key, is_descending=True), 1)[0] == "three"
        assert by_pages(compared, RunOrder(key, is_descending=False), 1)[-1] == "three"
    assert len(by_pages(compared, RunOrder("no/such"), 1)) == 2


def test_values_of_runs_are_read_by_name(compared):
    names = ["replay/num_replayed", "avg@8", "math500", "no/such"]
    assert list_values(compared, ["three", "seven"], names) == {
        "three": {"replay/num_replayed": 12.0, "avg@8": 0.5, "math500": None},
        "seven": {"replay/num_replayed": 3.0, "avg@8": 0.25, "math500": 0.75},
    }


@pytest.mark.parametrize("words", ["w " * MAX_WORDS, "w" * MAX_CHARACTERS, "seed=0 " * 30, "%_\\" * 100])
def test_longest_search_is_answered_and_a_longer_one_refused(filled, words):
    began_at = time.process_time()
    assert isinstance(ids(filled, RunFilter(words)), list)
    assert list_snippets(filled, TrajectoryFacets(words=words)) == []
    assert time.process_time() - began_at < 20.0
    for search in (lambda longer: ids(filled, RunFilter(longer)), split_words):
        with pytest.raises(SearchError):
            search(words + " w" * MAX_CHARACTERS)


CONFIGS = {
    "r1": {"lr": 1e-5, "seed": 2, "use_kl": True},
    "r2": {"lr": 3, "optim": {"name": "adamw", "betas": {"first": 0.9}}},
    "r3": {"learning_rate": 10, "data": {"n-shot": 5}, "model": "tiny"},
    "r4": {"trainer": {"optim": {"lr": 0.5, "weight decay": 0.1}, "seed": 7}, "naïve": "x"},
    "r5": {
        "opt": {"betas": [0.9, 0.999], "names": ["a b", "c"]}, "when": "2026-11-30", "share": "50%", "sizes": [1, 128],
    },
    "r6": {"opt": {"betas": [0.8, 1e-05], "names": []}, "when": "2025-01-01", "auto": "auto", "sizes": [12]},
    "r7": {"auto": 7, "gain": "+0.5"},
}  # fmt: skip


def fill_with_settings(database):
    register(database, "ours", spec=load_preset("chains-exgrpo").model_dump(mode="json") | {"seed": 0})
    for run_id, config in CONFIGS.items():
        register(database, run_id, spec={"kind": "recorded", "name": run_id, "config": config})


configured = shared(fill_with_settings)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("lr>1", ["r2", "r3"]), ("lr<1", ["r1", "r4", "ours"]), ("config.lr=3", ["r2"]), ("learning_rate=10", ["r3"]),
        ("optim.lr=0.5", ["r4"]), ("seed=2", ["r1"]), ("seed>=7", ["r4"]), ("trainer.seed=7", ["r4"]),
        ("first=0.9", ["r2"]), ("betas.first>0.5", ["r2"]), ("n-shot=5", ["r3"]), ("data.n-shot=5", ["r3"]),
        ("naïve=x", ["r4"]), ("use_kl=true", ["r1"]), ("model=tiny", ["r3"]), ("config.optim.name=adamw", ["r2"]),
        ("opt.betas=0.9", ["r5"]), ("opt.betas=0.90", ["r5"]), ("opt.betas=0.999", ["r5"]), ("opt.betas=1e-5", ["r6"]),
        ("opt.betas=99", []), ('opt.names="a b"', ["r5"]), ("opt.names=a", []), ("sizes=128", ["r5"]),
        ("sizes=1", ["r5"]), ("sizes=12", ["r6"]), ("sizes!=12", ["ours", "r1", "r2", "r3", "r4", "r5", "r7"]),
        ("-sizes=1 -sizes=12", ["ours", "r1", "r2", "r3", "r4", "r7"]), ("when=2026-11-30", ["r5"]), ("auto>1", ["r7"]),
        ("gain>0.4", ["r7"]),
    ],
)  # fmt: skip
def test_runs_are_found_by_any_setting_that_a_loop_recorded(configured, words, expected):
    assert sorted(ids(configured, RunFilter(words))) == sorted(expected)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("opt.betas>0.85", "[0.9"), ("betas<1", "[0.9"), ("when>2026", "2026-11-30"), ("when<=2025", "2026-11-30"),
        ("share>10%", "50%"), ("sizes>=1", "[1"), ("opt.names>0", "["), ("use_kl>many", "compares numbers"),
    ],
)  # fmt: skip
def test_values_of_which_none_is_a_number_are_refused_where_numbers_are_compared(configured, words, value):
    with pytest.raises(SearchError) as refusal:
        ids(configured, RunFilter(words))
    assert value in str(refusal.value) or "no number in any run" in str(refusal.value)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("held-out>40%", ["trained"]), ('"Held-out Avg@n">40%', ["trained"]), ('"Held-out Avg@8">40%', ["trained"]),
        ("held-out-avg@8>=0.5", ["trained"]), ("held-out-avg@4>0", []), ("held-out-pass@8>0.5", ["trained"]),
        ("held-out<1", ["trained"]), ("score>40%", ["scored", "trained"]), ("avg@8>40%", ["scored", "trained"]),
        ("scores>40%", ["scored", "trained"]),
    ],
)  # fmt: skip
def test_a_score_of_benchmarks_is_no_held_out_score(database, words, wanted):
    register(database, "trained")
    register(database, "scored", spec={"kind": "eval", "name": "scored"})

    def add(connection):
        keys = dict(connection.execute(select(models.runs.c.run_id, models.runs.c.run_key)).all())
        shared_values = {"at": BORN, "samples_per_question": 8, "question_ids": [], "num_correct": []}
        held_out = {"question_set": "held_out", "step": 1, "attempt": 1, "avg_at_n": 0.5, "pass_at_n": 0.75}
        connection.execute(insert(models.evaluations).values(run_key=keys["trained"], **held_out, **shared_values))
        score = {"scheme": "paper", "benchmark": "mine", "title": "Mine", "num_questions": 4, "score": 0.95}
        score |= {"outcomes": [], "comparability": {}, "comparability_key": "", "model": "m"}
        score |= dict.fromkeys(("mean_tokens", "truncated_share", "seconds"), 0.0)
        connection.execute(insert(models.benchmark_scores).values(run_key=keys["scored"], **score, **shared_values))

    database.write(add)
    assert sorted(ids(database, RunFilter(words))) == wanted
