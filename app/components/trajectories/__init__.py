"""Trajectories, their tokens and their lineage."""
