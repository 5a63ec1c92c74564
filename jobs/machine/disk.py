"""Sizes in bytes, and the free space that runs need on a disk."""

GB, GIB = 1e9, 1024**3
MIN_FREE_GIB = 5.0
"""With less, a run of a real model ends early."""
