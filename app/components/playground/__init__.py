"""A prompt, and what checkpoints of a run answer."""
