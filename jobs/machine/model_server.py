"""What clients of servers share: addresses that are refused, answers worth another try, and answers without the key."""

import ipaddress
import os
import socket
from urllib.parse import urlsplit

RETRIABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses of HTTP after which another try may succeed."""
_SECRET_CHARS = 8
"""Shorter keys are placeholders such as `x` and `EMPTY`, which also occur in ordinary text."""
KEY_ADDRESSES_VARIABLE = "EXGRPO_KEY_ADDRESSES"
"""Environment variable with the addresses of servers that may get an API key, with commas between them."""


class AddressRefusedError(ValueError):
    """A server that no request is sent to; one sentence says why."""


def check_address(field: str, address: str) -> None:
    """Refuse a server at a link-local address, where clouds have their metadata services; the look-up may take seconds.

    A specification may come from a form in a browser, and the worker that sends requests has more rights there.

    Raises:
        AddressRefusedError: Its name has such an address.
    """
    hostname = urlsplit(address).hostname or ""
    if is_link_local(hostname):
        raise AddressRefusedError(f"{field}: {hostname} is a link-local address; name a server at another one.")


def is_link_local(hostname: str) -> bool:
    """Return whether a name has a link-local address; it may be a number, in any way to write it."""
    try:
        entries = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    numbers = [ipaddress.ip_address(str(entry[4][0]).split("%")[0]) for entry in entries]
    return any((getattr(number, "ipv4_mapped", None) or number).is_link_local for number in numbers)


def key_for(address: str, variable: str) -> str:
    """Return the API key in `variable` for a server, "" without one.

    A user who may queue a job names its server, and must not learn the key by naming a server of their own.

    Raises:
        AddressRefusedError: `EXGRPO_KEY_ADDRESSES` does not name the server's scheme, host and port.
    """
    key = os.environ.get(variable, "").strip()
    allowed = os.environ.get(KEY_ADDRESSES_VARIABLE, "").replace(",", " ").split()
    if len(key) < _SECRET_CHARS or _origin(address) in map(_origin, allowed):
        return key
    raise AddressRefusedError(
        f"server.address: the key in {variable} is not sent to {address}; the administrator adds this address to "
        f"{KEY_ADDRESSES_VARIABLE} where the workbench runs, or removes the key."
    )


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        return "", None, None
    return parts.scheme, parts.hostname, port or {"http": 80, "https": 443}.get(parts.scheme)


def without_key(text: str, key: str) -> str:
    """Return a server's text with the API key replaced, since answers are stored."""
    return text.replace(key, "[key]") if len(key) >= _SECRET_CHARS else text
