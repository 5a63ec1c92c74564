"""Where a judge's server may stand: on the open network or on this machine, not in between unless allowed.

A specification may come from a form in a browser; without this rule it could make the worker talk to whatever the
machine can reach, the cloud's metadata service for one.
"""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefusedError(ValueError):
    """The server's address is not allowed or cannot be found; one sentence why and what to do."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked server: requests go to `url`, which holds the checked number, under the name `host`.

    The name is looked up once and the number kept, so that a name that changes its meaning leads nowhere else.
    """

    url: str
    host: str
    hostname: str


async def check_endpoint(address: str, allows_internal: bool) -> Endpoint:
    """Look the server's name up and check every number behind it.

    Raises:
        AddressRefusedError: A number is internal or link-local and that is not allowed, or there is none.
    """
    parts = urlsplit(address)
    hostname = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise AddressRefusedError(f"server.address: {hostname} is not known here; check its name.") from None
    numbers = [ipaddress.ip_address(str(entry[4][0]).split("%")[0]) for entry in found]
    refused = [number for number in numbers if not (allows_internal or is_open(number))]
    if refused or not numbers:
        raise AddressRefusedError(
            f"server.address: {hostname} is an internal or link-local address ({refused[0] if refused else 'none'}); "
            "set server.allows_internal_addresses if this is meant."
        )
    number = numbers[0]
    literal = f"[{number}]" if number.version == 6 else str(number)
    url = urlunsplit((parts.scheme, f"{literal}:{port}", f"{parts.path.rstrip('/')}/chat/completions", "", ""))
    return Endpoint(url, parts.netloc, hostname)


def is_open(number: Address) -> bool:
    """Return whether a number is this machine's loopback or one of the open network."""
    inner = getattr(number, "ipv4_mapped", None) or number
    if inner.is_loopback:
        return True
    return bool(inner.is_global and not inner.is_multicast)
