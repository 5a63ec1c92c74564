"""What clients of servers share: addresses that are refused, answers worth another try, and answers without the key."""

import ipaddress
import socket
from urllib.parse import urlsplit

RETRIABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses of HTTP after which another try may succeed."""
_SECRET_CHARS = 8
"""Shorter keys are placeholders such as `x` and `EMPTY`, which also occur in ordinary text."""
_CARRIES_IPV4 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Networks whose last 32 bits are an IPv4 address: NAT64, and the old way to write one (loopback `::1` aside)."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


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
    return any(_inner(ipaddress.ip_address(str(entry[4][0]).split("%")[0])).is_link_local for entry in entries)


def _inner(number: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address, else the address itself."""
    if isinstance(number, ipaddress.IPv4Address) or number.is_loopback or number.is_unspecified:
        return number
    if any(number in network for network in _CARRIES_IPV4):
        return ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
    return number.ipv4_mapped or number.sixtofour or number


def without_key(text: str, key: str) -> str:
    """Return a server's text with the API key replaced, since answers are stored."""
    return text.replace(key, "[key]") if len(key) >= _SECRET_CHARS else text
