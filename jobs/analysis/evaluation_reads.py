"""What an evaluation's folder holds, by the id of its run: questions with their answers, damage, scores over k."""

from collections.abc import Sequence
from pathlib import Path

from db.rows.chains_of_thought import Difficulty
from exgrpo_core import faults
from jobs.analysis import score_curves as curves_of_scores
from jobs.analysis.score_curves import QuestionCurves, ScoreCurve
from jobs.evaluation import recorded_answers
from jobs.evaluation.recorded_answers import QuestionSummary, RecordedQuestion
from jobs.runs.directory import RunDirectory, RunDirectoryError


def evaluation_answers(runs_root: Path, run_id: str, benchmark: str, question_id: str) -> RecordedQuestion | None:
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
    return curves_of_scores.mean_curves(_question_curves(runs_root, run_id, benchmark, scheme).values())


def score_curves_by_difficulty(
    runs_root: Path, run_ids: Sequence[str], benchmark: str, scheme: str
) -> dict[Difficulty, tuple[int, list[list[ScoreCurve]]]]:
    """Return the same of several evaluations for the questions of each difficulty, with the number of questions."""
    answered = [_question_curves(runs_root, run_id, benchmark, scheme) for run_id in run_ids]
    return {
        difficulty: (
            len(names),
            [curves_of_scores.mean_curves([curves[name] for name in names]) for curves in answered],
        )
        for difficulty, names in curves_of_scores.by_difficulty(answered).items()
    }


def _question_curves(runs_root: Path, run_id: str, benchmark: str, scheme: str) -> QuestionCurves:
    try:
        path = RunDirectory.open(runs_root, run_id).path
        return curves_of_scores.read_question_curves(path, benchmark, scheme)
    except (RunDirectoryError, OSError, KeyError, ValueError):
        return {}
