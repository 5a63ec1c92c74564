"""Run directories: states, attempts, journal, queue, checkpoints."""
