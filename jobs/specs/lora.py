"""Low-rank adapters, as a specification gives them."""

from typing import Literal

from pydantic import Field

from jobs.specs.base import Positive, Spec

LoraModule = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class LoraSpec(Spec):
    """Low-rank adapters (LoRA): they alone are trained; the model's own weights stay as they are."""

    rank: Positive = 16
    """Rank of each adapter."""
    alpha: Positive = 32
    """An adapter's product is multiplied by alpha / rank."""
    target_modules: tuple[LoraModule, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), min_length=1
    )
    """Projections of each layer that get an adapter."""
