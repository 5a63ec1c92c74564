"""Where messages go: Apprise URLs, which are secrets, from the environment or a file that only its owner may read."""

import contextlib
import hashlib
import logging
import stat
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exgrpo.jobs.machine.engine_environments import describe_missing_package
from exgrpo.jobs.machine.model_server import is_link_local
from exgrpo_core.errors import UserError

if TYPE_CHECKING:
    import apprise

URLS_VARIABLE = "EXGRPO_ALERT_URLS"
FILE_VARIABLE = "EXGRPO_ALERTS_FILE"
_WEB_KINDS = frozenset({"json", "jsons", "xml", "xmls", "form", "forms"})
"""Kinds whose host may be looked up; in others it is often a token, which no name server may see."""
_TALKATIVE_LOGGERS = ("apprise", "urllib3")
"""They log the address of a request, which is the secret."""


class AlertError(UserError):
    """Alerts are set up wrongly; one sentence without a URL."""


@dataclass(frozen=True, slots=True)
class Destination:
    """One receiver of messages; `name` names it without its secret.

    `fingerprint` depends on the URL alone, not on its position in the list, and is too short to guess the URL.
    """

    name: str
    fingerprint: str
    service: "apprise.Apprise"

    def send(self, title: str, body: str) -> bool:
        """Send a message as plain text and return whether it was accepted; never raises."""
        import apprise

        with contextlib.suppress(Exception):
            return bool(self.service.notify(body=body, title=title, body_format=apprise.NotifyFormat.TEXT))
        return False


def read_destinations(environment: MutableMapping[str, str]) -> list[Destination]:
    """Return all destinations; removes the variable with URLs, so that no child process inherits it.

    Raises:
        AlertError: The file cannot be read or others may read it, or Apprise is missing or does not know a URL.
    """
    urls = environment.pop(URLS_VARIABLE, "").split()
    name = environment.get(FILE_VARIABLE)
    if name:
        urls += _read_file(Path(name))
    return _open(urls) if urls else []


def _read_file(path: Path) -> list[str]:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise AlertError(f"{FILE_VARIABLE}: others may read {path}, which holds secrets; run `chmod 600` on it.")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise AlertError(f"{FILE_VARIABLE}: {path} cannot be read ({reason}); name a file with a URL a line.") from None
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _open(urls: list[str]) -> list[Destination]:
    try:
        import apprise
    except ModuleNotFoundError:
        raise AlertError(describe_missing_package("apprise")) from None
    for logger in _TALKATIVE_LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    asset = apprise.AppriseAsset(app_id="ExGRPO Workbench", app_desc="ExGRPO Workbench", http_redirects=False)
    destinations = []
    for number, url in enumerate(urls, start=1):
        kind = url.partition("://")[0].lower()
        label = f"alert URL {number} of {len(urls)}"
        plugin = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
        if plugin is None:
            raise AlertError(f"{label}: Apprise knows no such URL; its documentation lists them.")
        host = str(getattr(plugin, "host", "")).strip("[]")
        if is_link_local(host, is_looked_up=kind in _WEB_KINDS):
            raise AlertError(f"{label}: a link-local address is refused, since cloud metadata services use them.")
        service = apprise.Apprise(asset=asset)
        service.add(plugin)
        fingerprint = hashlib.sha256(url.encode()).hexdigest()[:8]
        destinations.append(Destination(f"{number} ({kind})", fingerprint, service))
    return destinations
