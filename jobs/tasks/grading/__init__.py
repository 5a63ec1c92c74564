"""Verdicts on responses: what is correct, and what could not be decided and why."""
