"""Entropy, code and verdicts on chains of thought; snowball cases."""
