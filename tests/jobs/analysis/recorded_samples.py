"""Answers of an evaluation as it records them."""

from pathlib import Path

from jobs.evaluation.answer_log import AnsweredQuestion, AnswerLog
from jobs.evaluation.generation import Sample
from jobs.evaluation.questions import BenchmarkQuestion
from jobs.grading.outcomes import Outcome
from jobs.grading.schemes import SideBySide


def append(
    run_path: Path,
    question_id: str,
    answers: list[tuple[str, float | None]],
    *,
    attempt: int = 1,
    benchmark: str = "sums",
) -> None:
    """Write a question's answers: (boxed text, sum of log-probs) each; 4 is correct, and rewarded is nothing."""
    run_path.mkdir(exist_ok=True)
    samples = [Sample(f"so \\boxed{{{boxed}}}" if boxed else "?", 2, False, log_prob) for boxed, log_prob in answers]
    correct = [Outcome.CORRECT if boxed == "4" else Outcome.WRONG for boxed, _ in answers]
    outcomes = [SideBySide(outcome, Outcome.WRONG) for outcome in correct]
    log = AnswerLog(run_path, benchmark, attempt)
    question = BenchmarkQuestion(question_id, ({"role": "user", "content": "?"},), "4", "math")
    log.append(AnsweredQuestion(question_id, 1, samples, outcomes, "g"), question)
    log.close()
