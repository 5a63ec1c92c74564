"""Where this process finds its runs, set once by the server, and the person of the current request with a role."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamlit as st

from exgrpo.jobs.runs.people import Person, Role, identify_by

EVERYONE = "*"
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
TOKEN_PARAMETER = "token"
"""The parameter of an address that carries the token."""


LINK_HOLDER = Person("link user", Role.ADMIN)
"""Without sign-in, anyone with the printed link may do everything."""
VIEW_HOLDER = Person(
    "link user", Role.VIEWER, "These pages only read; `exgrpo up` opens a folder of runs that can be changed."
)


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
    token: str | None = field(default=None, repr=False)
    """What a link needs to give access, never shown unless a user asks for such a link; None where people sign in."""


_settings: list[AppSettings] = []


def configure(settings: AppSettings) -> None:
    """Set the settings of this process, which from now on acts for the person of each request."""
    _settings[:] = [settings]
    identify_by(current_person)


def current() -> AppSettings:
    """Return the settings; without a server (a page run by itself) the runs are in ./runs."""
    return _settings[0] if _settings else AppSettings(Path("runs").absolute())


def runs_root() -> Path:
    """Return the folder of the runs that pages show."""
    return current().runs_root


def current_person() -> Person | None:
    """Return the person of this session; None if people sign in and this one has not, or has no role."""
    here = current()
    if here.is_view:
        return VIEW_HOLDER
    return LINK_HOLDER if here.roles is None else here.roles.person_of(st.user.to_dict())
