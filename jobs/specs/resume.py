"""How a run continues after it was stopped or killed."""

from typing import Literal

from jobs.specs.base import Spec


class ResumeSpec(Spec):
    """What a run takes up again after it was stopped or killed."""

    experience: Literal["as_of_checkpoint", "newest"] = "as_of_checkpoint"
    """A resume has a checkpoint's weights, and its experience, bit for bit as if never interrupted, or the `newest`:
    correctness, retired questions and trajectories of the steps after it too, whose weights are lost."""
