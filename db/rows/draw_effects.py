"""Plain rows of the experiment that Algorithm 2 makes: questions that a step drew against those that it did not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of the drawn minus that of the undrawn, within step and bucket; errors clustered by question."""

    value: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class DrawEffect:
    """What a replay changed for one group of questions.

    Changes are those of the correctness rate from the bucket k/K to the next attempt, in steps and buckets that have
    both kinds; with continuous rewards, the rate itself. They are NaN without any.
    """

    group: str
    num_drawn: int
    num_undrawn: int
    num_retired: int
    """Drawn questions that the same step retired, which have no next attempt."""
    change_drawn: float
    change_undrawn: float
    wait_drawn: float
    """Mean steps to the next attempt."""
    wait_undrawn: float
    difference: Difference
    """Of questions with a next attempt."""
    difference_with_retired: Difference
    """With retired ones counted as solved then; the truth is between both."""
