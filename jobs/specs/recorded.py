"""The specification of a run that a loop of the user's recorded: its name, and its settings as the loop gave them."""

from typing import Any, Literal

from jobs.specs.base import Spec
from jobs.specs.mistakes import checked


class RecordedSpec(Spec):
    """What `exgrpo_core.recording.start` writes."""

    kind: Literal["recorded"]
    name: str
    """What people call the run."""
    tags: tuple[str, ...] = ()
    config: dict[str, Any]
    """The settings of the loop, as it gave them."""


def parse_recorded_spec(content: object, origin: str) -> RecordedSpec:
    """Check the specification of a recorded run.

    Raises:
        SpecError: A field is wrong; one sentence names it and what was expected.
    """
    return checked(RecordedSpec, content, origin)
