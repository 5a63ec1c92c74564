"""Who asks for an action, and the role that it needs: checked where it is done, for pages, commands and agents."""

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from typing import ParamSpec, TypeVar

from exgrpo_core.errors import InputError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Role(IntEnum):
    """What a person may do; each role may do what those below it may."""

    VIEWER = 1
    """Look."""
    OPERATOR = 2
    """Start, stop and resume jobs, save drafts, annotate runs and trajectories."""
    ADMIN = 3
    """Hide runs from everyone's list, delete and restore them."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks; `name` appears in the audit log."""

    name: str
    role: Role
    why_refused: str = ""
    """What a refusal says, by default the person's role and the one that is needed."""


class RefusedError(InputError):
    """Who asks has no role that allows the action."""


def _user_of_this_machine() -> Person:
    return Person(f"{getpass.getuser()} on this machine", Role.ADMIN)


_acting: ContextVar[Person | None] = ContextVar("acting", default=None)
_who_asks: list[Callable[[], Person | None]] = [_user_of_this_machine]
ROLES: dict[Callable[..., object], Role] = {}
"""Every action that needs a role."""


def identify_by(who_asks: Callable[[], Person | None]) -> None:
    """Ask this function from now on who asks for an action of this process; nobody may do anything."""
    _who_asks[:] = [who_asks]


@contextmanager
def acting_as(person: Person) -> Iterator[None]:
    """Take `person` as who asks for what this thread does within the block."""
    before = _acting.set(person)
    try:
        yield
    finally:
        _acting.reset(before)


def acting_person() -> Person | None:
    """Return who asks for what this thread does: by default the user of this machine, None of nobody who is known."""
    return _acting.get() or _who_asks[0]()


def needs(role: Role) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Refuse an action to people below a role with `RefusedError`; the journal records who asked for it."""

    def guard(action: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(action)
        def run(*arguments: Arguments.args, **words: Arguments.kwargs) -> Result:
            person = acting_person()
            if person is None or person.role < role:
                raise RefusedError(_refusal(person, role))
            with acting_as(person):
                return action(*arguments, **words)

        ROLES[run] = role
        return run

    return guard


def _refusal(person: Person | None, role: Role) -> str:
    if person is not None and person.why_refused:
        return person.why_refused
    who = "Nobody is signed in" if person is None else f"{person.name} is {person.role.name.lower()}"
    return f"{who}, but this needs the role {role.name.lower()}; ask the person who runs the server for it."
