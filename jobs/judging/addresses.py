"""Where a judge's server stands: checked, off the event loop, before the first request."""

import asyncio
from dataclasses import replace

from jobs.machine import address_policy
from jobs.machine.address_policy import Endpoint


async def check_endpoint(address: str, allows_internal: bool) -> Endpoint:
    """Return where chat completions are asked for.

    Raises:
        AddressRefusedError: A number behind the name is internal and that is not allowed, or there is none.
    """
    endpoint = await asyncio.to_thread(address_policy.check_endpoint, "server", address, allows_internal)
    return replace(endpoint, url=f"{endpoint.url}/chat/completions")
