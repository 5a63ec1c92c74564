"""Check of a judge's server address before the first request, outside the event loop."""

import asyncio
from dataclasses import replace

from jobs.machine import address_policy
from jobs.machine.address_policy import Endpoint


async def check_endpoint(address: str, allows_internal: bool) -> Endpoint:
    """Return the endpoint of chat completions.

    Raises:
        AddressRefusedError: An address of the name is internal and that is not allowed, or there is none.
    """
    endpoint = await asyncio.to_thread(address_policy.check_endpoint, "server", address, allows_internal)
    return replace(endpoint, url=f"{endpoint.url}/chat/completions")
