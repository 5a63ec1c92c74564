"""What a study reads from a finished run: named numbers, the first of which represents the run."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.benchmarks import list_scores
from exgrpo.db.queries.code_analysis import code_lines, entropy_points, group_rates
from exgrpo.db.queries.judging import list_judges
from exgrpo.db.queries.metrics import last_metrics, list_evaluations, metric_series
from exgrpo.db.rows.runs import EvaluationRow
from exgrpo.db.rows.scores import BenchmarkScoreRow
from exgrpo.jobs.actions.studies.definition import Scale, Study
from exgrpo.jobs.evaluation.analysis.report import tabulate_validity
from exgrpo.jobs.evaluation.protocols import load_protocols
from exgrpo.jobs.specs.train import ORACLE_SOURCES
from exgrpo_core.config import CorrectnessRange
from exgrpo_core.policy_optimization.mixed_batch import is_in_range

Figures = dict[str, float]

BENCHMARK_COLUMNS = {
    "aime24": "AIME24",
    "aime25": "AIME25",
    "amc": "AMC",
    "math500": "MATH-500",
    "minerva": "Minerva",
    "olympiad_bench": "Olympiad",
    "arc_c": "ARC-c",
    "gpqa_diamond": "GPQA*",
    "mmlu_pro": "MMLU-Pro",
}
"""The paper's column of each benchmark."""
AVERAGES = {
    "ID Avg.": ("aime24", "aime25", "amc", "math500", "minerva", "olympiad_bench"),
    "OOD Avg.": ("arc_c", "gpqa_diamond", "mmlu_pro"),
}
HELD_OUT = "Held-out Avg@"
"""How the name of a held-out score begins."""
SCHEME = "paper"
"""The scheme of scoring that the paper used."""
BYTES_A_MEGABYTE = 1e6
_ALL_POINTS = 10_000_000


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A finished run to read from: its id and its specification as recorded."""

    run_id: str
    spec: dict[str, Any]


def measure_run(database: Database, study: Study, scale: Scale, run: MeasuredRun) -> Figures:
    """Return the figures of a run; what it does not show (no such trajectories, no verdicts) is left out."""
    if study.measure == "held_out" and scale is Scale.PAPER:
        scores = benchmark_scores(database, run.run_id)
        if scores:
            return scores
    figures = _MEASURES[study.measure](database, run)
    return {name: value for name, value in figures.items() if not math.isnan(value)}


def held_out_rows(database: Database, run_id: str) -> list[EvaluationRow]:
    """Return the evaluations on held-out questions in order of steps."""
    return [row for row in list_evaluations(database, run_id) if row.question_set == "held_out"]


def is_score(figure: str) -> bool:
    """Whether a figure is a share of correct answers, in percent."""
    return figure.startswith(HELD_OUT) or figure in AVERAGES or figure in BENCHMARK_COLUMNS.values()


def benchmark_scores(database: Database, run_id: str) -> Figures:
    """Return the score of each benchmark on the run's last scored checkpoint, in percent, averages first.

    The newest with the paper's numbers of questions and samples counts, else the newest.
    """
    rows = sorted(list_scores(database, source_run_id=run_id, scheme=SCHEME), key=lambda row: not _is_the_papers(row))
    last_step = max((row.source_step or 0 for row in rows), default=0)
    scores: Figures = {}
    for row in rows:
        if (row.source_step or 0) == last_step:
            scores.setdefault(row.benchmark, 100.0 * row.score)
    averages = {
        name: fmean(scores[item] for item in names) for name, names in AVERAGES.items() if scores.keys() >= {*names}
    }
    return averages | {column: scores[name] for name, column in BENCHMARK_COLUMNS.items() if name in scores}


def _is_the_papers(row: BenchmarkScoreRow) -> bool:
    protocol = load_protocols().get(row.benchmark)
    wanted = protocol and (protocol.num_questions, protocol.samples_per_question)
    return wanted == (row.num_questions, row.samples_per_question)


def _held_out(database: Database, run: MeasuredRun) -> Figures:
    rows = held_out_rows(database, run.run_id)
    return {f"{HELD_OUT}{rows[-1].samples_per_question} (%)": 100.0 * rows[-1].avg_at_n} if rows else {}


def _step_seconds(database: Database, run: MeasuredRun) -> Figures:
    points = metric_series(database, run.run_id, ["seconds/step"], _ALL_POINTS)["seconds/step"]
    if not points:
        return {}
    seconds = [point.value for point in points]
    last = last_metrics(database, run.run_id)
    num_fresh = last.get("rollouts/fresh_total", 0.0)
    return {
        "Avg. Step (s)": fmean(seconds),
        "Min. Step (s)": min(seconds),
        "Peak Step (s)": max(seconds),
        "stored trajectories": last.get("buffer/num_trajectories", 0.0),
        "stored tokens": last.get("buffer/num_tokens", 0.0),
        "Index in memory (MB)": last.get("buffer/memory_bytes", math.nan) / BYTES_A_MEGABYTE,
        "Trajectories in files (MB)": last.get("buffer/file_bytes", math.nan) / BYTES_A_MEGABYTE,
        "Fresh rollouts": num_fresh,
        "Fresh rollouts per step": num_fresh / len(seconds),
    }


def _methods(database: Database, run: MeasuredRun) -> Figures:
    """Return the held-out score, then what it took: tokens, steps, time, memory of experience."""
    keys = ["seconds/step", "tokens/generated", "tokens/replayed", "buffer/num_trajectories", "buffer/file_bytes"]
    series = metric_series(database, run.run_id, keys, _ALL_POINTS)
    seconds, generated, replayed, stored, sizes = ([point.value for point in series[key]] for key in keys)
    if not seconds:
        return _held_out(database, run)
    num_tokens = sum(generated) + sum(replayed)
    return _held_out(database, run) | {
        "Generated tokens": sum(generated),
        "Steps": float(len(seconds)),
        "Time of all steps (s)": sum(seconds),
        "Avg. Step (s)": fmean(seconds),
        "Peak of the buffer (trajectories)": max(stored, default=math.nan),
        "Peak of the buffer's files (MB)": max(sizes, default=math.nan) / BYTES_A_MEGABYTE,
        "Replayed tokens (%)": 100.0 * sum(replayed) / num_tokens if num_tokens else math.nan,
    }


def _mini_batches(database: Database, run: MeasuredRun) -> Figures:
    left = metric_series(database, run.run_id, ["batch/questions_left"], _ALL_POINTS)["batch/questions_left"]
    if left:
        return {"# Avg. Mini-Batch": fmean(point.value for point in left)}
    algorithm = run.spec["algorithm"]
    num_steps = len(metric_series(database, run.run_id, ["seconds/step"], _ALL_POINTS)["seconds/step"])
    num_batches = algorithm["batch_size"] // algorithm["mini_batch_size"] * num_steps
    if algorithm["mask_range"] is None or not num_batches:
        return {}
    mask_range = CorrectnessRange(**algorithm["mask_range"])
    return {"# Avg. Mini-Batch": count_unmasked(group_rates(database, run.run_id), mask_range) / num_batches}


def count_unmasked(rates: Sequence[float], mask_range: CorrectnessRange) -> int:
    """Return how many of these correctness rates of groups are in the range."""
    return sum(is_in_range(rate, mask_range) for rate in rates)


def _judge(database: Database, run: MeasuredRun) -> str | None:
    """Return the newest judge of a run; on built-in tasks none, since the oracle's verdicts are exact."""
    has_oracle = run.spec["data"]["source"] in ORACLE_SOURCES
    judges = [] if has_oracle else list_judges(database, run.run_id)
    return next((judge.judge_run_id for judge in judges if judge.num_votes), None)


def _code(database: Database, run: MeasuredRun) -> Figures:
    figures: Figures = {}
    for line in code_lines(database, run.run_id, _judge(database, run)):
        name = f"{line.group}, {'with' if line.has_code else 'without'} code"
        figures[f"{name}: entropy"] = line.mean_entropy
        figures[f"{name}: CoT correctness (%)"] = 100.0 * line.cot_correctness
        figures[f"{name}: trajectories"] = float(line.num_trajectories)
    return figures


def _validity(database: Database, run: MeasuredRun) -> Figures:
    figures: Figures = {}
    points = entropy_points(database, run.run_id, _judge(database, run), max_points=_ALL_POINTS).points
    for line in tabulate_validity(points):
        figures |= {
            f"{line.group}: AUC of entropy": line.entropy_auc,
            f"{line.group}: AUC of perplexity": line.perplexity_auc,
            f"{line.group}: entropy, valid": line.entropy_valid,
            f"{line.group}: entropy, invalid": line.entropy_invalid,
            f"{line.group}: perplexity, valid": line.perplexity_valid,
            f"{line.group}: perplexity, invalid": line.perplexity_invalid,
        }
    return figures


_MEASURES: dict[str, Callable[[Database, MeasuredRun], Figures]] = {
    "held_out": _held_out,
    "step_seconds": _step_seconds,
    "mini_batches": _mini_batches,
    "code": _code,
    "validity": _validity,
    "methods": _methods,
}
