"""Rewards as somebody else would write them, in a module of their own."""

import os
import threading

NOT_A_FUNCTION = 3
GIVEN = {"infinite": float("inf"), "nan": float("nan"), "text": "no number", "none": None, "dict": {"score": 1.0}}


def shortness(question: str, answer: str, response: str) -> float:
    """1 for an empty response, less for a longer one."""
    assert question
    assert answer
    return 1 / (1 + len(response))


def odd(_question: str, _answer: str, response: str) -> object:
    """Do with each response what it says."""
    if response == "raise":
        raise RuntimeError
    if response == "hang":
        threading.Event().wait()
    if response == "die":
        os._exit(1)
    if response == "key":
        return {}["score"]
    return GIVEN.get(response, 0.5)
