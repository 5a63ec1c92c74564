"""Evaluations: starting one, the benchmarks that can be chosen, and what recorded answers are worth."""

from collections.abc import Sequence
from pathlib import Path

from app import settings
from app.commands import UserError, needs
from app.roles import Role
from db.rows.analysis import Difficulty
from jobs.actions.evaluations import plan_evaluation, submit_evaluation
from jobs.analysis.score_curves import (
    MEASURES,
    QuestionCurves,
    ScoreCurve,
    by_difficulty,
    mean_curves,
    read_question_curves,
)
from jobs.evaluation.recorded_answers import RecordedQuestion, find_answer_damage, find_answers
from jobs.evaluation.regrades import RecordedRegrading, read_regradings
from jobs.evaluation.user_benchmarks import benchmarks_folder as user_benchmarks_folder
from jobs.evaluation.user_benchmarks import load_user_benchmarks
from jobs.machine.engine_environments import VLLM_LOOP, EngineEnvironmentError, engine_python
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.specs.reward_parts import PARTS

__all__ = [
    "MEASURES", "RecordedQuestion", "RecordedRegrading", "ScoreCurve", "UserError", "answer_damage",
    "benchmarks_folder", "evaluate", "evaluation_answers", "missing_vllm", "regradings", "reward_parts", "score_curves",
    "score_curves_by_difficulty", "user_benchmarks",
]  # fmt: skip


@needs(Role.OPERATOR)
def evaluate(target: str, fields: dict[str, object]) -> str:
    """Queue the evaluation of `RUN@STEP`, a model's folder or hub name, and return its id."""
    runs_root = settings.current().runs_root
    return submit_evaluation(runs_root, plan_evaluation(runs_root, target, fields, "form"))


def user_benchmarks() -> tuple[dict[str, str], list[str]]:
    """Return the titles of the user's benchmarks by name, and a sentence on each wrong entry, which is left out."""
    declared = load_user_benchmarks(settings.current().runs_root)
    return {name: choice.title or name for name, choice in declared.choices.items()}, declared.faults


def reward_parts() -> list[str]:
    """Return the built-in parts of training rewards."""
    return list(PARTS)


def benchmarks_folder() -> Path:
    """Return where the user's benchmarks are declared."""
    return user_benchmarks_folder(settings.current().runs_root)


def _run_path(run_id: str) -> Path:
    return RunDirectory.open(settings.current().runs_root, run_id).path


def evaluation_answers(run_id: str, benchmark: str, question_id: str) -> RecordedQuestion | None:
    """Return what an evaluation recorded of one question, None if its folder is gone."""
    try:
        return find_answers(_run_path(run_id), benchmark, question_id)
    except (RunDirectoryError, OSError, KeyError, ValueError):
        return None


def answer_damage(run_id: str, benchmark: str) -> list[str]:
    """Return a sentence on each damage of what an evaluation recorded of a benchmark."""
    try:
        return find_answer_damage(_run_path(run_id), benchmark)
    except RunDirectoryError:
        return []


def score_curves(run_id: str, benchmark: str, scheme: str) -> list[ScoreCurve]:
    """Return an evaluation's scores over the number of answers; none if its folder is gone."""
    return mean_curves(_question_curves(run_id, benchmark, scheme).values())


def score_curves_by_difficulty(
    run_ids: Sequence[str], benchmark: str, scheme: str
) -> dict[Difficulty, tuple[int, list[list[ScoreCurve]]]]:
    """Return the same of several evaluations for the questions of each difficulty, with the number of questions."""
    answered = [_question_curves(run_id, benchmark, scheme) for run_id in run_ids]
    groups = by_difficulty(answered)
    return {
        difficulty: (
            len(names),
            [mean_curves([curves[name] for name in names]) for curves in answered],
        )
        for difficulty, names in groups.items()
    }


def _question_curves(run_id: str, benchmark: str, scheme: str) -> QuestionCurves:
    try:
        return read_question_curves(_run_path(run_id), benchmark, scheme)
    except (RunDirectoryError, OSError, KeyError, ValueError):
        return {}


def regradings(run_id: str) -> tuple[list[RecordedRegrading], list[str]]:
    """Return how a job's recorded answers were graded again, and a sentence on each damaged file of that."""
    try:
        return read_regradings(_run_path(run_id))
    except RunDirectoryError:
        return [], []


def missing_vllm() -> str:
    """Return in one sentence that no environment has vLLM and which command makes one, nothing where one has it."""
    try:
        engine_python(VLLM_LOOP)
    except EngineEnvironmentError as error:
        return str(error)
    return ""
