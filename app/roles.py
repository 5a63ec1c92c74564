"""Who may do what: three roles, and which of them a signed-in person has."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

EVERYONE = "*"


class Role(IntEnum):
    """What a person may do; each role may do what those below it may."""

    VIEWER = 1
    """Look."""
    OPERATOR = 2
    """Start, stop and resume jobs, keep drafts, and say something of runs and trajectories."""
    ADMIN = 3
    """Hide runs from everyone's list, and show them again."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks; `name` is what the audit log says."""

    name: str
    role: Role


LINK_HOLDER = Person("link user", Role.ADMIN)
"""Where nobody signs in, whoever has the printed link may do everything."""


@dataclass(frozen=True)
class Roles:
    """Roles by rule: an address, `@domain`, or `*` for whoever signs in; of several that fit the highest counts."""

    by_rule: Mapping[str, Role]

    def person_of(self, claims: Mapping[str, Any]) -> Person | None:
        """Return who the provider says this is, None where nobody is signed in or no rule fits.

        An address that the provider calls anything but verified names nobody; without the claim it counts.
        """
        email = str(claims.get("email") or "").strip().lower()
        if claims.get("is_logged_in") is not True or "@" not in email:
            return None
        if claims.get("email_verified", True) not in (True, "true"):
            return None
        rules = (email, f"@{email.rpartition('@')[2]}", EVERYONE)
        found = [self.by_rule[rule] for rule in rules if rule in self.by_rule]
        return Person(email, max(found)) if found else None
