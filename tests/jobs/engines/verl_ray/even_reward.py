"""The reward of the embedded engine's tests, as verl calls it: right when the first token's number is even."""

from tests.jobs.engines.tiny_models import VOCABULARY


def compute_score(solution_str, **_verl):
    is_even = bool(solution_str) and VOCABULARY.index(solution_str[0]) % 2 == 0
    return {
        "score": float(is_even),
        "outcome": "correct" if is_even else "wrong",
        "is_valid": None,
        "has_code": False,
    }
