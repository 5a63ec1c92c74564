"""What clients of servers share: addresses that are refused, answers worth another try, and answers without the key."""

import ipaddress
import socket
from urllib.parse import urlsplit

RETRIABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses of HTTP after which another try may succeed."""
_SECRET_CHARS = 8
"""Shorter keys are placeholders such as `x` and `EMPTY`, which also occur in ordinary text."""


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


def is_link_local(hostname: str, *, is_looked_up: bool = True) -> bool:
    """Return whether a name has a link-local address; one not looked up must be a number, in any way to write it."""
    flags = 0 if is_looked_up else socket.AI_NUMERICHOST
    try:
        entries = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError):
        return False
    numbers = [ipaddress.ip_address(str(entry[4][0]).split("%")[0]) for entry in entries]
    return any((getattr(number, "ipv4_mapped", None) or number).is_link_local for number in numbers)


def without_key(text: str, key: str) -> str:
    """Return a server's text with the API key replaced, since answers are stored."""
    return text.replace(key, "[key]") if len(key) >= _SECRET_CHARS else text
