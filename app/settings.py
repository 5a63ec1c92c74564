"""Where this process finds its runs, set once by the server, and the person of the current request."""

from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from app.roles import LINK_HOLDER, Person, Roles


@dataclass(frozen=True, slots=True)
class AppSettings:
    """`database_url` None means the SQLite file inside `runs_root`; it may hold a password, so it is never printed."""

    runs_root: Path
    database_url: str | None = field(default=None, repr=False)
    roles: Roles | None = None
    """Roles of people who sign in; None without sign-in, when anyone with the link may do everything."""


_settings: list[AppSettings] = []


def configure(settings: AppSettings) -> None:
    """Set the settings of this process."""
    _settings[:] = [settings]


def current() -> AppSettings:
    """Return the settings; without a server (a page run by itself) the runs are in ./runs."""
    return _settings[0] if _settings else AppSettings(Path("runs").absolute())


def current_person() -> Person | None:
    """Return the person of this session; None if people sign in and this one has not, or has no role."""
    roles = current().roles
    return LINK_HOLDER if roles is None else roles.person_of(st.user.to_dict())
