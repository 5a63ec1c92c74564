"""What can become of a graded answer."""

from enum import StrEnum


class Outcome(StrEnum):
    """Verdict on one response; only `correct` earns a reward."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSED = "unparsed"
    """No answer was found: no box, an empty or overlong one, one that is not an answer, or a broken format rule."""
    TIMEOUT = "timeout"
    """Grading took longer than the limit and was killed."""
    CRASH = "crash"
    """Grading ran out of memory or took its process down."""
