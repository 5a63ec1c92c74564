"""Run directories: states, attempts, journal, queue, checkpoints; launchers, and readers of what was recorded."""
