"""Signing in with OpenID Connect: the settings file, the sign-in page, and the cookie.

The flow itself is Streamlit's (`st.login`, by Authlib). Before it succeeds, the gate allows nothing else.
"""

import contextlib
import difflib
import hashlib
import html
import importlib.util
import json
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamlit.auth_util import encode_provider_token, get_cookie_with_chunks
from streamlit.web.server.starlette.starlette_app_utils import decode_signed_value
from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME

from exgrpo.app.settings import Roles
from exgrpo.jobs.runs.people import Role
from exgrpo_core.durable_files import append_line
from exgrpo_core.errors import InputError

SIGN_OUT_PATH = "/auth/logout"
PATHS = frozenset({"/auth/login", SIGN_OUT_PATH, "/oauth2callback"})
"""The paths that need no sign-in."""
MIN_SECRET_LENGTH = 32
_NEEDED = ("client_id", "client_secret", "server_metadata_url", "redirect_uri", "cookie_secret")


class SignInError(InputError):
    """A sign-in file that cannot be used."""


@dataclass(frozen=True)
class SignIn:
    """The settings of a sign-in file; `host` is the host name of the redirect back from the provider.

    `ended_file` has a line for each sign-in that ended with a sign-out, whose cookies are refused: somebody may have
    copied them.
    """

    path: Path
    roles: Roles
    host: str
    _cookie_secret: str
    ended_file: Path
    _ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Read which sign-ins have ended.

        Raises:
            SignInError: The file exists, but cannot be read.
        """
        try:
            self._ended.update(self.ended_file.read_text(encoding="ascii").split())
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is not ASCII text"
            raise SignInError(
                f"{self.ended_file}: cannot be read ({why}), so that ended sign-ins would be valid again; repair it."
            ) from None

    def claims(self, cookies: Mapping[str, str]) -> dict[str, Any]:
        """Return the provider's claims about the sender of these cookies, empty if they are not valid or have ended."""
        payload = self._payload(cookies)
        try:
            claims = json.loads(payload)
        except ValueError:
            return {}
        return claims if isinstance(claims, dict) and _identity(cookies, payload) not in self._ended else {}

    def end(self, cookies: Mapping[str, str]) -> None:
        """Refuse these cookies from now on, also after a restart; nothing happens if they are not valid."""
        if self.claims(cookies):
            identity = _identity(cookies, self._payload(cookies))
            self._ended.add(identity)
            with contextlib.suppress(OSError):  # a full disk keeps nobody signed in
                append_line(self.ended_file, identity.encode())

    def _payload(self, cookies: Mapping[str, str]) -> bytes:
        def read(name: str) -> bytes | None:
            value = cookies.get(name)
            return None if value is None else decode_signed_value(self._cookie_secret, name, value)

        return get_cookie_with_chunks(read, USER_COOKIE_NAME) or b"{}"

    def admits(self, cookies: Mapping[str, str]) -> bool:
        """Return whether these cookies belong to somebody with a role."""
        return self.roles.person_of(self.claims(cookies)) is not None

    def page(self, cookies: Mapping[str, str]) -> str:
        """Return the HTML for somebody without access: a title and the next step."""
        claims = self.claims(cookies)
        if claims:
            name = html.escape(str(claims.get("email") or claims.get("sub") or "nobody known"))
            return (
                f"<h1>No role for you here</h1><p>You are signed in as {name}. The person who runs this server "
                'can give you a role.</p><p><a href="/auth/logout">Sign out</a></p>'
            )
        link = f"/auth/login?provider={encode_provider_token('default')}"
        return f'<h1>ExGRPO Workbench</h1><p><a href="{link}">Sign in</a></p>'


def _identity(cookies: Mapping[str, str], payload: bytes) -> str:
    """Return a hash of what differs between sign-ins: claims and time, not the signature, which can be respelled."""
    signed = cookies.get(USER_COOKIE_NAME, "").rpartition(".")[0]
    return hashlib.sha256(signed.encode() + payload).hexdigest()


def read_sign_in(path: Path, ended_file: Path) -> SignIn:
    """Read a sign-in file: Streamlit's `[auth]` section, and `[roles]` with lists under viewer, operator and admin.

    Raises:
        SignInError: It cannot be read, others may read it, a field is wrong, Authlib is not installed, or the file of
            ended sign-ins cannot be read.
    """
    if importlib.util.find_spec("authlib") is None:
        raise SignInError("sign-in: Authlib is not installed; install the workbench with its extra `oidc`.")
    content = _read(path)
    auth = content.get("auth")
    missing = [name for name in _NEEDED if not (isinstance(auth, dict) and isinstance(auth.get(name), str))]
    if missing or not isinstance(auth, dict):
        raise SignInError(f"{path}: auth: expected texts under {', '.join(missing)}; see docs/deployment.md.")
    if len(auth["cookie_secret"]) < MIN_SECRET_LENGTH:
        raise SignInError(f"{path}: auth.cookie_secret: expected at least {MIN_SECRET_LENGTH} random characters.")
    parts = urlsplit(auth["redirect_uri"])
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path != "/oauth2callback":
        raise SignInError(
            f"{path}: auth.redirect_uri: expected https://HOST/oauth2callback, got {auth['redirect_uri']}."
        )
    roles = _read_roles(path, content.get("roles"))
    return SignIn(path.absolute(), roles, parts.hostname, auth["cookie_secret"], ended_file)


def _read(path: Path) -> dict[str, Any]:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise SignInError(f"{path}: others may read it, and it holds secrets; run `chmod 600` on it.")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SignInError(f"{path}: cannot be read ({error.strerror}); name a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise SignInError(f"{path}: is not TOML; see docs/deployment.md.") from None


def _read_roles(path: Path, content: object) -> Roles:
    names = {role.name.lower(): role for role in Role}
    if not isinstance(content, dict) or not content:
        raise SignInError(f"{path}: roles: expected lists under {', '.join(names)}, at least one of them.")
    for unknown in content.keys() - names.keys():
        nearest = difflib.get_close_matches(unknown, names, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"expected one of {', '.join(names)}."
        raise SignInError(f"{path}: roles.{unknown}: there is no such role; {hint}")
    by_rule: dict[str, Role] = {}
    for name, rules in content.items():
        if not isinstance(rules, list) or not all(isinstance(rule, str) and rule.strip() for rule in rules):
            raise SignInError(f"{path}: roles.{name}: expected a list of addresses, @domains or *.")
        for rule in rules:
            rule_text = rule.strip().lower()
            by_rule[rule_text] = max(names[name], by_rule.get(rule_text, Role.VIEWER))
    return Roles(by_rule)
