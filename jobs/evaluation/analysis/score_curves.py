"""Scores over the number of answers k: what several answers to a question are worth, however one of them is chosen."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from exgrpo.db.rows.chains_of_thought import EASY_ABOVE, HARD_UP_TO, Difficulty
from exgrpo.db.statistics import score_interval, standard_error
from exgrpo.jobs.evaluation import recorded_answers
from exgrpo.jobs.evaluation.recorded_answers import AnsweredQuestion, QuestionSummary, iterate_answers
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError
from exgrpo.jobs.runs.recording.event_reader import iterate_events
from exgrpo.jobs.tasks.grading.boxed_answers import last_boxed, plain_form
from exgrpo.jobs.tasks.grading.reward_function import Grade
from exgrpo_core import faults

Curve = NDArray[np.float64]
"""Values for k = 1 to n, (n,)."""
MEASURES = {
    "pass@k": "any of k answers is correct",
    "maj@k": "the most frequent answer of k is correct",
    "best by log-prob": "the answer of k with the highest mean log-prob of its tokens is correct",
    "best by reward": "the answer of k with the highest reward of training is correct",
}
"""What each measure is the share of."""
QuestionCurves = Mapping[str, Sequence[Curve]]
"""For each question the curve of each measure."""


def pass_at_k(num_correct: int, num_samples: int) -> Curve:
    """Return the chances that at least one of k answers is correct."""
    missed: Curve = _missed(num_samples)[num_samples - num_correct]
    return 1.0 - missed


def best_of_k(scores: Sequence[float], are_correct: Sequence[bool]) -> Curve:
    """Return the chances that the answer with the highest score of k is correct; of equal scores each is as likely."""
    num_samples = len(scores)
    missed = _missed(num_samples)
    values = np.asarray(scores, dtype=np.float64)
    correct = np.asarray(are_correct, dtype=np.float64)
    curve, num_left = np.zeros(num_samples), num_samples
    for score in np.unique(values)[::-1]:
        ties = values == score
        num_below = num_left - int(ties.sum())
        curve += (missed[num_left] - missed[num_below]) * correct[ties].mean()
        num_left = num_below
    return curve


def majority_at_k(num_correct: int, wrong_votes: Sequence[int], num_samples: int) -> Curve:
    """Return the chances that the most frequent of k answers is correct; of equally frequent ones each is as likely.

    Correct answers are one answer, `wrong_votes` count each other one, and what is left gave no answer and no vote.
    """
    votes = np.arange(1, num_correct + 1)
    # A tie of t + 1 answers is won with 1 / (t + 1), the integral of y^t over [0, 1]: each tie is a factor y.
    nodes, weights = np.polynomial.legendre.leggauss(len(wrong_votes) // 2 + 1)
    tie = (nodes + 1) / 2
    num_blank = num_samples - num_correct - sum(wrong_votes)
    # Ways in which others take l of the k draws and none exceeds the votes of the correct answer: (votes, nodes, l).
    ways = np.zeros((num_correct, tie.size, num_samples + 1))
    ways[:, :, : num_blank + 1] = [comb(num_blank, drawn) for drawn in range(num_blank + 1)]
    for count in wrong_votes:
        longer = np.zeros_like(ways)
        for drawn in range(count + 1):
            allowed = np.where(drawn < votes[:, None], 1.0, np.where(drawn == votes[:, None], tie, 0.0))
            longer[:, :, drawn:] += comb(count, drawn) * allowed[:, :, None] * ways[:, :, : num_samples + 1 - drawn]
        ways = longer
    won = np.einsum("vnl,n->vl", ways, weights / 2)
    curve = np.zeros(num_samples)
    for vote in votes:
        curve[vote - 1 :] += comb(num_correct, vote) * won[vote - 1, : num_samples + 1 - vote]
    return curve / np.array([comb(num_samples, k) for k in range(1, num_samples + 1)], dtype=np.float64)


def _missed(num_samples: int) -> NDArray[np.float64]:
    """Return the chances that k of n samples are all among m of them, for each m from 0 to n and k from 1: (n + 1, n).

    They are C(m, k) / C(n, k), a product of k ratios (m - i) / (n - i).
    """
    among = np.arange(num_samples + 1)[:, None]
    before = np.arange(num_samples)[None, :]
    return np.cumprod(np.maximum(among - before, 0) / (num_samples - before), axis=1)


_majority_at_k = lru_cache(maxsize=20_000)(majority_at_k)


@dataclass(frozen=True, slots=True)
class ScoreCurve:
    """One measure for k = 1 to n in [0, 1], the mean over questions; empty where log-probs are not recorded.

    The ends of the 95% intervals are those of a score: they cover the choice of questions and the sampling of answers,
    not another training run.
    """

    measure: str
    values: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def read_score_curves(run_path: Path, benchmark: str, scheme: str) -> list[ScoreCurve]:
    """Return the mean curves of a benchmark from an evaluation's recorded answers; none without answers."""
    return mean_curves(read_question_curves(run_path, benchmark, scheme).values())


def read_question_curves(run_path: Path, benchmark: str, scheme: str) -> QuestionCurves:
    """Return the curves of each question of a benchmark from an evaluation's recorded answers, one of each measure.

    Only questions of the newest score count, else those with as many samples as the evaluation was last asked for.
    """
    events = iterate_events(RunDirectory(run_path), "benchmark")
    scores = [event["question_ids"] for event in events if event.get("benchmark") == benchmark]
    scored = set(scores[-1]) if scores else None
    questions = {
        name: _curves(entry, scheme)
        for name, entry in iterate_answers(run_path, benchmark)
        if entry.samples and (scored is None or name in scored)
    }
    num_samples = max((curves[0].size for curves in questions.values()), default=0)
    return {name: curves for name, curves in questions.items() if curves[0].size == num_samples}


def mean_curves(questions: Collection[Sequence[Curve]]) -> list[ScoreCurve]:
    """Return the mean curve of each measure; none without questions."""
    return [_mean(*item) for item in zip(MEASURES, zip(*questions, strict=True), strict=True)] if questions else []


def by_difficulty(models: Sequence[QuestionCurves]) -> dict[Difficulty, list[str]]:
    """Return the questions that all models answered, by the models' mean share of correct answers."""
    common = [name for name in models[0] if all(name in curves for curves in models)] if models else []
    groups: dict[Difficulty, list[str]] = {difficulty: [] for difficulty in Difficulty}
    for name in common:
        rate = fmean(curves[name][0][0] for curves in models)
        easier = Difficulty.EASY if rate > EASY_ABOVE else Difficulty.MEDIUM
        groups[Difficulty.HARD if rate <= HARD_UP_TO else easier].append(name)
    return groups


def _curves(question: AnsweredQuestion, scheme: str) -> list[Curve]:
    """Return the curve of each measure for one question; an empty one where log-probs are not recorded."""
    samples, outcomes = question.samples, question.outcomes
    are_correct = [getattr(sides, scheme) is Grade.CORRECT for sides in outcomes]
    wrong = (sample.text for sample, correct in zip(samples, are_correct, strict=True) if not correct)
    votes = Counter(plain_form(last_boxed(text) or "") for text in wrong)
    votes.pop("", None)
    num_correct = sum(are_correct)
    rewards = [float(sides.training is Grade.CORRECT) for sides in outcomes]
    log_probs = [sample.log_prob / max(1, sample.num_tokens) for sample in samples if sample.log_prob is not None]
    return [
        pass_at_k(num_correct, len(samples)),
        _majority_at_k(num_correct, tuple(sorted(votes.values())), len(samples)),
        best_of_k(log_probs, are_correct) if len(log_probs) == len(samples) else np.zeros(0),
        best_of_k(rewards, are_correct),
    ]


def _mean(measure: str, curves: Sequence[Curve]) -> ScoreCurve:
    if not all(curve.size for curve in curves):
        return ScoreCurve(measure)
    of_questions = np.array(curves).T.tolist()
    means = tuple(map(fmean, of_questions))
    ends = [
        score_interval(mean, standard_error(rates), len(rates)) for mean, rates in zip(means, of_questions, strict=True)
    ]
    return ScoreCurve(measure, means, *map(tuple, zip(*ends, strict=True)))


def evaluation_answers(runs_root: Path, run_id: str, benchmark: str, question_id: str) -> AnsweredQuestion | None:
    """Return what an evaluation recorded of one question, None if its folder is gone."""
    try:
        return recorded_answers.find_answers(RunDirectory.open(runs_root, run_id).path, benchmark, question_id)
    except (RunDirectoryError, OSError, KeyError, ValueError):
        return None


def evaluation_questions(runs_root: Path, run_id: str, benchmark: str) -> list[QuestionSummary]:
    """Return the finished questions of an evaluation's benchmark, none if its folder is gone."""
    try:
        return recorded_answers.list_questions(RunDirectory.open(runs_root, run_id).path, benchmark)
    except (RunDirectoryError, OSError):
        return []


def answer_damage(runs_root: Path, run_id: str, benchmark: str) -> list[str]:
    """Return a sentence on each damage of what an evaluation recorded of a benchmark."""
    try:
        damage = recorded_answers.find_answer_damage(RunDirectory.open(runs_root, run_id).path, benchmark)
        return [faults.describe_fault(fault) for fault in damage]
    except RunDirectoryError:
        return []


def score_curves(runs_root: Path, run_id: str, benchmark: str, scheme: str) -> list[ScoreCurve]:
    """Return an evaluation's scores over the number of answers; none if its folder is gone."""
    return mean_curves(_question_curves(runs_root, run_id, benchmark, scheme).values())


def score_curves_by_difficulty(
    runs_root: Path, run_ids: Sequence[str], benchmark: str, scheme: str
) -> dict[Difficulty, tuple[int, list[list[ScoreCurve]]]]:
    """Return the same of several evaluations for the questions of each difficulty, with the number of questions."""
    answered = [_question_curves(runs_root, run_id, benchmark, scheme) for run_id in run_ids]
    return {
        difficulty: (
            len(names),
            [mean_curves([curves[name] for name in names]) for curves in answered],
        )
        for difficulty, names in by_difficulty(answered).items()
    }


def _question_curves(runs_root: Path, run_id: str, benchmark: str, scheme: str) -> QuestionCurves:
    try:
        path = RunDirectory.open(runs_root, run_id).path
        return read_question_curves(path, benchmark, scheme)
    except (RunDirectoryError, OSError, KeyError, ValueError):
        return {}
