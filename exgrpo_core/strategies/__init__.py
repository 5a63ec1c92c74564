"""Replay methods, one file a variant: classes of `exgrpo_core.methods.protocols`, found by their `name`."""
