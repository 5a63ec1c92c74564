"""Graders: golds against themselves, hostile answers, speed against Math-Verify alone, and with more workers.

Run `python -m bench.grading`. The paper's evaluation data are read from `../shared` or the folder that EXGRPO_SHARED
names; without them the golds are left out. Hostile answers are graded by eight workers at once and, the slowest of
them, alone.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.hostile_answers import MARKER, hostile_answers
from bench.report import Figure, report
from exgrpo.jobs.evaluation.benchmark_questions import load_benchmark
from exgrpo.jobs.evaluation.protocols import find_protocol
from exgrpo.jobs.specs.evaluation import BenchmarkChoice
from exgrpo.jobs.tasks.grading.answer_grader import CHUNK_SIZE, AnswerGrader, GradeItem, Scheme
from exgrpo.jobs.tasks.grading.reward_function import Grade

NUM_HOSTILE_WORKERS = 8
NUM_ORDINARY, NUM_ORDINARY_SHORT = 1024, 128
FILES = {
    "aime24": "test.id.parquet", "aime25": "test.id.parquet", "amc": "test.id.parquet", "math500": "test.id.parquet",
    "minerva": "test.id.parquet", "olympiad_bench": "test.id.parquet", "arc_c": "arc_c.parquet",
    "mmlu_pro": "mmlu_pro_test.jsonl.gz",
}  # fmt: skip
WARM_UP = GradeItem("x + 1", r"\boxed{1 + x}", "math")


def gold_items(folder: Path) -> list[tuple[str, GradeItem]]:
    """Return every gold answer of the provided files in a box, as an answer to itself, with its benchmark."""
    items = []
    for name, file in FILES.items():
        loaded = load_benchmark(BenchmarkChoice(name=name, source=str(folder / file)), find_protocol(name))
        items += [
            (name, GradeItem(question.answer, rf"\boxed{{{question.answer}}}", question.answer_kind))
            for question in loaded.questions
        ]
    return items


def grade_golds(items: Sequence[tuple[str, GradeItem]]) -> dict[str, Figure]:
    """Return the share of golds that each scheme calls correct, and print each exception."""
    figures: dict[str, Figure] = {"num_golds": len(items)}
    with AnswerGrader(num_workers=2) as grader:
        for scheme in Scheme:
            outcomes = grader.grade([item for _, item in items], scheme)
            for (name, item), outcome in zip(items, outcomes, strict=True):
                if outcome is not Grade.CORRECT:
                    print(f"  {scheme} {name}: {item.gold!r} is {outcome}")
            figures[f"golds_correct_{scheme}"] = outcomes.count(Grade.CORRECT) / len(items)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        verdicts = pool.map(verify_alone, [(item.gold, item.response) for _, item in items if item.kind == "math"], 64)
    figures["golds_correct_math_verify_alone"] = sum(verdicts) / len(verdicts)
    return figures


def time_hostile(answers: Sequence[str], num_workers: int, limit: float) -> list[tuple[float, Grade]]:
    """Return for each answer the longest time that a scheme took, and what `training` made of it."""

    def grade_some(answers: Sequence[str]) -> list[tuple[float, Grade]]:
        graded: list[tuple[float, Grade]] = []
        with AnswerGrader(num_workers=1, seconds_per_answer=limit) as grader:
            for answer in answers:
                item = GradeItem("7/2", rf"\boxed{{{answer}}}", "math")
                longest, outcomes = 0.0, {}
                for scheme in Scheme:
                    # The start of a new process after a kill is not the answer's time.
                    grader.grade([GradeItem(f"x + {len(graded)}", WARM_UP.response, "math")])
                    began_at = time.perf_counter()
                    (outcome,) = grader.grade([item], scheme)
                    longest = max(longest, time.perf_counter() - began_at)
                    outcomes[scheme] = outcome
                graded.append((longest, outcomes[Scheme.TRAINING]))
        return graded

    shares = [answers[entry::num_workers] for entry in range(num_workers)]
    with ThreadPoolExecutor(num_workers) as threads:
        graded = list(threads.map(grade_some, shares))
    return [graded[value % num_workers][value // num_workers] for value in range(len(answers))]


def ordinary_pairs(num_pairs: int, seed: int) -> list[tuple[str, str]]:
    """Return distinct gold answers with answers as models give them: about half right, in several notations."""
    draw = random.Random(seed)
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < num_pairs:
        number, other = draw.randint(2, 9999), draw.randint(2, 99)
        gold, right = draw.choice(
            [
                (str(number), str(number)),
                (str(number), f"{number:,}"),
                (str(number), f"x = {number}"),
                (rf"\frac{{{number}}}{{{other}}}", rf"\dfrac{{{number}}}{{{other}}}"),
                (rf"{number}\sqrt{{{other}}}", rf"{number} \sqrt{{{other}}}"),
                (rf"({number},{other})", rf"({number}, {other})"),
                (rf"\frac{{{number}\pi}}{{{other}}}", rf"{number}\pi/{other}"),
            ]
        )
        pairs[gold, rf"\boxed{{{right if draw.random() < 0.5 else number + other}}}"] = None
    return list(pairs)


def verify_alone(pair: tuple[str, str], max_seconds: int | None = 5) -> bool:
    """Grade one answer by Math-Verify alone, as its documentation does."""
    from math_verify import parse, verify

    gold, response = (parse(text, parsing_timeout=max_seconds) for text in (rf"\boxed{{{pair[0]}}}", pair[1]))
    return bool(verify(gold, response, timeout_seconds=max_seconds))


def compare_cold(pairs: list[tuple[str, str]]) -> dict[str, Figure]:
    """Return seconds for ordinary answers, the start of two processes included: Math-Verify alone and these graders."""
    began_at = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(verify_alone, pairs, CHUNK_SIZE)
        alone = time.perf_counter() - began_at
    began_at = time.perf_counter()
    with AnswerGrader(num_workers=2) as grader:
        grader.grade([GradeItem(gold, response, "math") for gold, response in pairs])
        return {"math_verify_alone_cold_s": alone, "cold_s": time.perf_counter() - began_at}


def compare_speed(num_rounds: int, num_pairs: int) -> dict[str, Figure]:
    """Return seconds for ordinary answers in pools of two: Math-Verify alone, these graders, and all schemes.

    Cold times are of the first answers after a start, and with it.
    """
    alone, graded, side_by_side = [], [], []
    figures = compare_cold(ordinary_pairs(num_pairs, seed=0))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(verify_alone, ordinary_pairs(256, seed=1), 1)
        for number in range(num_rounds):
            pairs = ordinary_pairs(num_pairs, seed=2 + number)
            items = [GradeItem(gold, response, "math") for gold, response in pairs]
            began_at = time.perf_counter()
            pool.map(verify_alone, pairs, CHUNK_SIZE)
            alone.append(time.perf_counter() - began_at)
            with AnswerGrader(num_workers=2) as grader:
                grader.grade([GradeItem(f"x + {item}", WARM_UP.response, "math") for item in range(256)])
                began_at = time.perf_counter()
                grader.grade(items)
                graded.append(time.perf_counter() - began_at)
                began_at = time.perf_counter()
                grader.grade_side_by_side(items)
                side_by_side.append(time.perf_counter() - began_at)
    return figures | {
        "math_verify_alone_s": statistics.median(alone),
        "ordinary_s": statistics.median(graded),
        "all_schemes_s": statistics.median(side_by_side),
        "speed_ratio": statistics.median(alone) / statistics.median(graded),
    }


def hostile_figures(answers: Sequence[str], num_alone: int, limit: float) -> dict[str, Figure]:
    """Return how long hostile answers took by eight workers and alone, and what became of them."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            graded = time_hostile(answers, NUM_HOSTILE_WORKERS, limit)
            slow = sorted(range(len(answers)), key=lambda index: -graded[index][0])[:num_alone]
            alone = time_hostile([answers[item] for item in slow], 1, limit)
            num_run = sum(1 for path in Path(folder).rglob("*") if path.name == MARKER)
        finally:
            os.chdir(before)
    outcomes = Counter(str(outcome) for _, outcome in graded)
    print("  hostile answers:", ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    return {
        "hostile_limit_s": limit,
        "hostile_worst_of_8_workers_s": max(seconds for seconds, _ in graded),
        "hostile_worst_alone_s": max(seconds for seconds, _ in alone),
        "num_hostile": len(graded),
        "num_hostile_correct": outcomes[Grade.CORRECT],
        "num_executed": num_run,
    }


def main() -> None:
    """Measure and print the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--short", action="store_true", help="every thirtieth hostile answer and gold, and few ordinary ones"
    )
    parser.add_argument("--limit", type=float, default=1.0, help="seconds an answer")
    arguments = parser.parse_args()
    limit = arguments.limit
    step, num_alone, num_rounds = (30, 1, 1) if arguments.short else (1, 10, 9)
    num_pairs = NUM_ORDINARY_SHORT if arguments.short else NUM_ORDINARY
    figures = compare_speed(num_rounds, num_pairs) | hostile_figures(hostile_answers()[::step], num_alone, limit)
    targets = {
        "speed_ratio": ">= 1.0",
        "hostile_worst_alone_s": f"<= {limit + 1}",
        "hostile_worst_of_8_workers_s": f"<= {limit + 1}",
        "num_hostile_correct": "== 0",
        "num_executed": "== 0",
    }
    folder = Path(os.environ.get("EXGRPO_SHARED", Path(__file__).parents[2] / "shared")) / "data" / "benchmarks"
    if folder.is_dir():
        figures |= grade_golds(gold_items(folder)[::step])
        targets |= {f"golds_correct_{scheme}": ">= 0.998" for scheme in Scheme}
    report("grading", figures, targets)


if __name__ == "__main__":
    main()
