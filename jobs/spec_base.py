"""What all specifications share: strict fields, and numbers with a lower bound."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]


class Spec(BaseModel):
    """Base of all specifications: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
