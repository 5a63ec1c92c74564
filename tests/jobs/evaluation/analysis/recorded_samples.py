"""Answers of an evaluation as it records them."""

from pathlib import Path

from exgrpo.jobs.evaluation.generation import Sample
from exgrpo.jobs.evaluation.recorded_answers import AnsweredQuestion, AnswerLog
from exgrpo.jobs.tasks.grading.answer_grader import SideBySide
from exgrpo.jobs.tasks.grading.reward_function import Grade


def append(
    run_path: Path,
    question_id: str,
    answers: list[tuple[str, float | None]],
    *,
    attempt: int = 1,
    benchmark: str = "sums",
    text: str = "?",
) -> None:
    """Write a question's answers: (boxed text, sum of log-probs) each; 4 is correct, and rewarded is nothing."""
    run_path.mkdir(exist_ok=True)
    samples = [Sample(f"so \\boxed{{{boxed}}}" if boxed else "?", 2, False, log_prob) for boxed, log_prob in answers]
    correct = [Grade.CORRECT if boxed == "4" else Grade.WRONG for boxed, _ in answers]
    outcomes = [SideBySide(outcome, Grade.WRONG) for outcome in correct]
    log = AnswerLog(run_path, benchmark, attempt)
    log.append(AnsweredQuestion(question_id, text, "4", 1, samples, outcomes, "g"))
    log.close()
