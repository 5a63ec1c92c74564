"""Whether a form can be launched: its specification, and every reason against it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exgrpo.app.settings import runs_root
from exgrpo.jobs.actions import branching
from exgrpo.jobs.actions.preflight.resolution import Preflight, Refusal, resolve
from exgrpo.jobs.specs.train import SpecError, TrainSpec, parse_spec
from exgrpo_core.errors import Mistake, UserError

NO_ADDRESS = Mistake("expected an address to launch it from here; the scripts below need none.", "verl.ray.address")
"""The reason against a launch on a cluster that one cannot reach, whose script and estimates are there all the same."""


@dataclass(frozen=True, slots=True)
class FormCheck:
    """What a form holds, checked, and every reason against launching it."""

    preflight: Preflight | None
    """What a launch queues; None where a field is wrong."""
    mistakes: tuple[Mistake, ...]

    @property
    def spec(self) -> TrainSpec | None:
        """The specification as the form holds it; None where a field is wrong."""
        return None if self.preflight is None else self.preflight.requested


def check(content: dict[str, object], text_mistake: str, branched: tuple[str, int] | None) -> FormCheck:
    """Return what the form holds and every reason why it cannot be launched.

    `branched` names the run and the step of the checkpoint that it continues from.
    """
    others = (Mistake(text_mistake),) if text_mistake else ()
    try:
        preflight = _resolve(content, branched)
    except SpecError as error:
        return FormCheck(None, (*others, *error.mistakes))
    except UserError as error:
        return FormCheck(None, (*others, Mistake(str(error))))
    return FormCheck(preflight, (*others, *(refusal.mistake for refusal in preflight.refusals)))


def _resolve(content: dict[str, object], branched: tuple[str, int] | None) -> Preflight:
    has_no_address = _lacks_address(content)
    if has_no_address:
        verl: Any = content["verl"]
        content = {**content, "verl": {**verl, "ray": {**verl["ray"], "address": None}}}
    spec = parse_spec(content, "form")
    root = runs_root()
    preflight = resolve(spec, root) if branched is None else branching.check_branch(root, *branched, spec)
    if has_no_address:  # what this machine lacks says nothing of another
        others = [refusal for refusal in preflight.refusals if not refusal.is_local]
        preflight.refusals = [Refusal(NO_ADDRESS, is_local=False), *others]
    return preflight


def _lacks_address(content: Mapping[str, Any]) -> bool:
    """Whether a form asks for a cluster and names none yet."""
    verl = content.get("verl")
    return isinstance(verl, dict) and isinstance(verl.get("ray"), dict) and verl["ray"].get("address") == ""
