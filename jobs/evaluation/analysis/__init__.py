"""Analyses of recorded trajectories: code, entropy against validity, and both over time."""
