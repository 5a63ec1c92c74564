import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader, GradeItem
from exgrpo.jobs.tasks.grading.reward_function import Grade
from exgrpo.jobs.tasks.grading.worker_process import GraderError
from tests.jobs.execution.supervisor.toy_bench import wait_until

pytestmark = pytest.mark.slow

LIMIT = 10.0
"""Ordinary answers, of some milliseconds, meet it on a machine that is very busy too."""
SYMBOLIC = [
    (r"\frac{1}{2}", r"\boxed{0.5}", Grade.CORRECT), (r"\frac{1}{2}", r"\boxed{\frac{1}{3}}", Grade.WRONG),
    ("p - q", r"\boxed{-q + p}", Grade.CORRECT),
    (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3, \pi/2)}", Grade.CORRECT),
    ("5", r"\boxed{x = 5}", Grade.CORRECT), ("12", r"\boxed{many}", Grade.WRONG),
    (r"x^2 + 2x + 1", r"\boxed{(x+1)^2}", Grade.CORRECT),
]  # fmt: skip
TOWER = r"\boxed{9^{9^{9^{9^{9}}}}}"
FACTORIAL = r"\boxed{99999999999!}"
BINOMIAL = r"\boxed{\binom{10^9}{5\cdot10^8}}"
POISONED = {Grade.TIMEOUT, Grade.CRASH}
"""What becomes of an answer too large to compute: plain Python runs out of time, gmpy2 aborts the process."""
UNGRADED = {Grade.TIMEOUT, Grade.CRASH, Grade.UNPARSED, Grade.WRONG}


def math_items(cases=SYMBOLIC) -> list[GradeItem]:
    return [GradeItem(gold, response, "math") for gold, response, _ in cases]


def wait_until_busy(pid: int) -> None:
    before = psutil.Process(pid).cpu_times().user
    wait_until(lambda: psutil.Process(pid).cpu_times().user > before + 0.05, "the answer is being graded")


@pytest.fixture(scope="module")
def shared():
    """A grader whose process, slow to start, serves all tests of this file."""
    with AnswerGrader(seconds_per_answer=LIMIT) as grader:
        yield grader


@pytest.fixture
def grader(shared):
    """A grader that remembers no answer, with a child that is ready."""
    shared._remembered.clear()
    shared.grade([GradeItem("x + 1", r"\boxed{1 + x}", "math")])
    return shared


@pytest.fixture
def limit(shared, monkeypatch):
    return lambda seconds: monkeypatch.setattr(shared._workers[0], "_seconds", seconds)


def test_plain_answers_start_no_process():
    items = [GradeItem("5", r"\boxed{5}", "math"), GradeItem("B", r"\boxed{C}", "choice"), GradeItem("5", "5", "math")]
    with AnswerGrader() as lazy:
        assert lazy.grade(items) == ["correct", "wrong", "unparsed"]
        assert lazy.worker_ids == []


def test_counts_are_decided_without_a_process_so_that_load_cannot_change_the_verdict():
    pairs = [
        ("12 red apples", "12"), ("12", "12 people"), ("12", "$12$ oranges"), ("12 apples", r"12\text{ pears}"),
        ("1,200", "1200 tickets sold"), ("12 oranges", "13"), ("12", "13 people"),
    ]  # fmt: skip
    with AnswerGrader() as lazy:
        outcomes = lazy.grade([GradeItem(gold, rf"\boxed{{{answer}}}", "math") for gold, answer in pairs])
        assert lazy.worker_ids == []
    assert outcomes == [Grade.CORRECT] * 5 + [Grade.WRONG] * 2


def test_several_threads_share_one_grader():
    limits = {"seconds_per_answer": 3 * LIMIT, "memory_bytes": 3 << 30}
    with AnswerGrader(num_workers=2, **limits) as shared, ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: shared.grade(math_items()), range(8)))
        programs = [psutil.Process(pid).cmdline() for pid in shared.worker_ids]
    assert [words[-2:] for words in programs] == [[str(3 << 30), str(3 * LIMIT)]] * 2
    assert results == [[outcome for _, _, outcome in SYMBOLIC]] * 8


def test_a_decided_pair_is_remembered_without_a_process(grader):
    expected = grader.grade(math_items())
    before = grader.worker_ids
    os.kill(before[0], signal.SIGKILL)
    repeated = [GradeItem(item.gold, "another thought, " + item.response, "math") for item in math_items()]
    assert grader.grade(repeated * 50) == expected * 50
    assert grader.worker_ids == before


@pytest.mark.parametrize(
    ("response", "possible"),
    [(FACTORIAL, POISONED), (BINOMIAL, POISONED)],
    ids=["memory", "in C, which ignores signals"],
)
def test_a_poisonous_answer_costs_its_limit_and_nothing_else(grader, response, possible):
    items = [*math_items(SYMBOLIC[:2]), GradeItem("7/2", response, "math"), *math_items(SYMBOLIC[2:])]
    outcomes = grader.grade(items)
    assert outcomes[2] in possible
    assert outcomes[:2] + outcomes[3:] == [outcome for _, _, outcome in SYMBOLIC]


@pytest.mark.parametrize(
    ("response", "outcomes"),
    [
        (r"\boxed{" + "5" * 1_000_000 + "}", {Grade.UNPARSED}), (r"\boxed{" * 140_000, {Grade.UNPARSED}),
        (r"\boxed{" + "{" * 400 + "5" + "}" * 400 + "}", UNGRADED | {Grade.CORRECT}),
        (r"\boxed{" + r"\sqrt{" * 120 + "5" + "}" * 121, UNGRADED),
        (r"\boxed{" + r"\frac{1}{" * 90 + "5" + "}" * 91, UNGRADED), ("\\boxed{\ud800\x00\x1b[2J}", UNGRADED),
        (r"\boxed{__import__('os').getpid()}", UNGRADED),
    ],
    ids=["digits", "boxes", "braces", "roots", "fractions", "characters", "code"],
)  # fmt: skip
def test_hostile_text_gets_an_outcome(shared, limit, response, outcomes):
    limit(2.0)
    assert shared.grade([GradeItem("7/2", response, "math")])[0] in outcomes
    limit(LIMIT)
    assert shared.grade(math_items()) == [outcome for _, _, outcome in SYMBOLIC]


def test_a_killed_process_is_a_crash_and_the_next_answer_is_graded(grader, limit):
    limit(600.0)
    (first,) = grader.worker_ids
    with ThreadPoolExecutor(1) as threads:
        items = [GradeItem("7/2", TOWER, "math"), GradeItem("7/2", r"\boxed{7 \div 2}", "math")]
        under_way = threads.submit(grader.grade, items)
        wait_until_busy(first)
        os.kill(first, signal.SIGKILL)
        outcomes = under_way.result()
    assert outcomes == [Grade.CRASH, Grade.CORRECT]
    assert grader.worker_ids != [first]


def test_an_answer_without_processor_is_given_up_by_the_clock_and_the_next_child_comes_from_what_is_loaded(
    grader, limit
):
    (first,) = grader.worker_ids
    loaded = psutil.Process(first).parent()
    psutil.Process(first).suspend()
    limit(1.0)
    assert grader.grade([GradeItem("9/2", r"\boxed{4.50}", "math")]) == [Grade.TIMEOUT]
    limit(LIMIT)
    (second,) = grader.worker_ids
    assert second != first
    assert psutil.Process(second).parent() == loaded
    assert grader.grade([GradeItem("9/2", r"\boxed{9 \div 2}", "math")]) == [Grade.CORRECT]
    assert grader.worker_ids == [second]


def test_a_child_that_dies_between_answers_costs_at_most_one(grader):
    os.kill(grader.worker_ids[0], signal.SIGKILL)
    items = [GradeItem(f"x + {number}", rf"\boxed{{{number} + x}}", "math") for number in range(2, 6)]
    assert grader.grade(items)[1:] == [Grade.CORRECT] * 3


def test_a_missing_think_end_is_refused_only_where_it_is_required():
    items = [GradeItem("5", r"\boxed{5}", "math"), GradeItem("5", r"so</think>\boxed{5}", "math")]
    with AnswerGrader() as lenient, AnswerGrader(requires_think_end=True) as strict:
        assert lenient.grade(items) == [Grade.CORRECT, Grade.CORRECT]
        assert strict.grade(items) == [Grade.UNPARSED, Grade.CORRECT]


def test_close_ends_processes_and_a_call_under_way():
    pool = AnswerGrader(seconds_per_answer=600.0)
    pool.grade(math_items(SYMBOLIC[:1]))
    process = psutil.Process(pool.worker_ids[0])
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(pool.grade, [GradeItem("7/2", TOWER, "math")])
        wait_until_busy(process.pid)
        pool.close()
        pool.close()
        with pytest.raises(GraderError):
            under_way.result()
    assert not process.is_running()
    assert pool.worker_ids == []


@pytest.mark.parametrize("is_busy", [False, True])
def test_grading_processes_die_with_their_parent(is_busy, repository):
    program = f"""
import sys, threading, time
from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader, GradeItem
grader = AnswerGrader(seconds_per_answer=1.0)
grader.grade([GradeItem("1/2", r"\\boxed{{0.5}}", "math")])
if {is_busy}:
    poison = [GradeItem("7/2", r"\\boxed{{\\binom{{10^9}}{{5\\cdot10^8}}}}", "math")]
    threading.Thread(target=grader.grade, args=(poison,), daemon=True).start()
    time.sleep(0.3)
print(grader.worker_ids[0], flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=repository) as parent:
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    worker.wait(timeout=60)
    assert not worker.is_running()
