"""The reward of the embedded engine's tests, as verl calls it: right when the first token's number is even.

A question whose answer is `fail` cannot be graded; one whose answer is a path can, once the file is there, which the
first try makes.
"""

from pathlib import Path

from tests.jobs.training.engines.tiny_models import VOCABULARY


def compute_score(solution_str, ground_truth, **_verl):
    if ground_truth == "fail":
        raise RuntimeError("a planted failure")
    if ground_truth.startswith("/") and not Path(ground_truth).exists():
        Path(ground_truth).touch()
        raise RuntimeError("a planted failure, once")
    is_even = bool(solution_str) and VOCABULARY.index(solution_str[0]) % 2 == 0
    return {
        "score": float(is_even),
        "outcome": "correct" if is_even else "wrong",
        "is_valid": None,
        "has_code": False,
    }
