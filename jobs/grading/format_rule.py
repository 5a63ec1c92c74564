"""The authors' format condition on responses."""

THINK_END = "</think>"


def closes_thought(response: str) -> bool:
    """Return whether the response closes its thought; the authors reward no other one (not on Llama base)."""
    return THINK_END in response
