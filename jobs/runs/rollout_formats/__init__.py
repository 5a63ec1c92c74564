"""Formats of other programs' rollouts: one file a format, found by looking at content."""
