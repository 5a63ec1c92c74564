"""Parts of all specifications: strict fields, numbers with bounds, addresses without secrets."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from exgrpo_core.config import MAX_SEED

Positive = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
"""Seed of random numbers."""


def numpy_seed(seed: int) -> int:
    """Return the seed for verl and vLLM, which seed numpy with it: below 2**32, with room for verl to add a rank."""
    return seed % 2**31


def _check_server_address(address: str) -> str:
    try:
        parts = urlsplit(address)
        is_whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("expected an http or https address such as http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("expected no user, password, query or fragment; set the key in the environment")
    return address.rstrip("/")


ServerAddress = Annotated[str, AfterValidator(_check_server_address)]
"""Address of a model's server; `jobs.machine.model_server` checks where it is when it is used."""


class Spec(BaseModel):
    """Base of all specifications: unknown fields and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
