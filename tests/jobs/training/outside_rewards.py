"""Rewards as somebody else would write them, in a module of their own."""

import os
import threading

NOT_A_FUNCTION = 3


def shortness(question: str, answer: str, response: str) -> float:
    """1 for an empty response, less for a longer one."""
    assert question
    assert answer
    return 1 / (1 + len(response))


def odd(_question: str, _answer: str, response: str) -> float | str:
    """Do with each response what it says."""
    if response == "raise":
        raise RuntimeError
    if response == "hang":
        threading.Event().wait()
    if response == "die":
        os._exit(1)
    return {"infinite": float("inf"), "text": "no number"}.get(response, 0.5)
