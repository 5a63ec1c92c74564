"""Where this process finds its runs, set once by the server, and the person of the current request with a role."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import streamlit as st

EVERYONE = "*"


class Role(IntEnum):
    """What a person may do; each role may do what those below it may."""

    VIEWER = 1
    """Look."""
    OPERATOR = 2
    """Start, stop and resume jobs, save drafts, annotate runs and trajectories."""
    ADMIN = 3
    """Hide runs from everyone's list, delete and restore them; add, test and remove Ray clusters."""


@dataclass(frozen=True, slots=True)
class Person:
    """The person of a request; `name` appears in the audit log."""

    name: str
    role: Role


LINK_HOLDER = Person("link user", Role.ADMIN)
"""Without sign-in, anyone with the printed link may do everything."""
VIEW_HOLDER = Person("link user", Role.VIEWER)
"""The person of a read-only view."""


@dataclass(frozen=True)
class Roles:
    """Roles by rule: an address, `@domain`, or `*` for everyone who signs in; the highest matching role counts."""

    by_rule: Mapping[str, Role]

    def person_of(self, claims: Mapping[str, Any]) -> Person | None:
        """Return the person in the provider's claims, None if nobody is signed in or no rule matches.

        An address that the provider does not call verified is ignored; without that claim it counts.
        """
        email = str(claims.get("email") or "").strip().lower()
        if claims.get("is_logged_in") is not True or "@" not in email:
            return None
        if claims.get("email_verified", True) not in (True, "true"):
            return None
        rules = (email, f"@{email.rpartition('@')[2]}", EVERYONE)
        matching = [self.by_rule[rule] for rule in rules if rule in self.by_rule]
        return Person(email, max(matching)) if matching else None


@dataclass(frozen=True, slots=True)
class AppSettings:
    """`database_url` None means the SQLite file inside `runs_root`; it may hold a password, so it is never printed."""

    runs_root: Path
    database_url: str | None = field(default=None, repr=False)
    roles: Roles | None = None
    """Roles of people who sign in; None without sign-in, when anyone with the link may do everything."""
    is_view: bool = False
    """Whether this is `exgrpo view`: pages only read, and no supervisor belongs to them."""


_settings: list[AppSettings] = []


def configure(settings: AppSettings) -> None:
    """Set the settings of this process."""
    _settings[:] = [settings]


def current() -> AppSettings:
    """Return the settings; without a server (a page run by itself) the runs are in ./runs."""
    return _settings[0] if _settings else AppSettings(Path("runs").absolute())


def current_person() -> Person | None:
    """Return the person of this session; None if people sign in and this one has not, or has no role."""
    here = current()
    if here.is_view:
        return VIEW_HOLDER
    return LINK_HOLDER if here.roles is None else here.roles.person_of(st.user.to_dict())
