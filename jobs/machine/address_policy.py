"""Allowed addresses of servers: the public internet and this machine; internal networks only if the user allows them.

A specification may come from a form in a browser; without this rule it could make a worker send requests to any address
that the machine can reach, such as the cloud's metadata service. A name is resolved once and the connection is made to
the checked address, so that a changed DNS record cannot redirect it.
"""

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_CARRIES_IPV4 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Networks whose last 32 bits are an IPv4 address: NAT64, and the old way to write one (loopback `::1` aside)."""


class AddressRefusedError(ValueError):
    """An address that is not allowed or cannot be resolved; one sentence says why and what to do."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked server: requests go to `url`, which has the checked address, with `host` in the Host header.

    `hostname` is the name without its port, for TLS.
    """

    url: str
    host: str
    hostname: str


def check_endpoint(section: str, address: str, allows_internal: bool) -> Endpoint:
    """Resolve the server's name, which may take seconds, and check all of its addresses.

    `section` of the specification holds `address` and `allows_internal_addresses`.

    Raises:
        AddressRefusedError: An address is internal or link-local and that is not allowed, or there is none.
    """
    parts = urlsplit(address)
    hostname = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        numbers = _numbers_of(hostname)
    except (OSError, UnicodeError):
        raise AddressRefusedError(f"{section}.address: the name {hostname} cannot be resolved; check it.") from None
    refused = [number for number in numbers if not (allows_internal or is_open(number))]
    if refused or not numbers:
        example = refused[0] if refused else "none"
        raise AddressRefusedError(
            f"{section}.address: {hostname} is an internal or link-local address ({example}); "
            f"set {section}.allows_internal_addresses if this is meant."
        )
    number = numbers[0]
    literal = f"[{number}]" if number.version == 6 else str(number)
    url = urlunsplit((parts.scheme, f"{literal}:{port}", parts.path.rstrip("/"), "", ""))
    return Endpoint(url, parts.netloc, hostname)


def is_open(number: Address) -> bool:
    """Return whether an address is this machine's loopback or public."""
    inner = _inner(number)
    is_special = inner.is_multicast or inner.is_reserved or (inner.version == 6 and inner.is_site_local)
    return inner.is_loopback or (inner.is_global and not is_special)


def is_link_local_name(hostname: str, *, is_looked_up: bool = True) -> bool:
    """Return whether a name has a link-local address, as metadata services do; one not looked up must be a number."""
    flags = 0 if is_looked_up else socket.AI_NUMERICHOST
    try:
        return any(_inner(number).is_link_local for number in _numbers_of(hostname, flags))
    except (OSError, UnicodeError):
        return False


def _numbers_of(hostname: str, flags: int = 0) -> list[Address]:
    entries = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM, flags=flags)
    return [ipaddress.ip_address(str(entry[4][0]).split("%")[0]) for entry in entries]


def _inner(number: Address) -> Address:
    """Return the IPv4 address inside an IPv6 address, else the address itself."""
    if isinstance(number, ipaddress.IPv4Address) or number.is_loopback or number.is_unspecified:
        return number
    if any(number in network for network in _CARRIES_IPV4):
        return ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
    return number.ipv4_mapped or number.sixtofour or number
