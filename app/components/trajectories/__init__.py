"""Trajectories, their tokens and lineage, and the playground."""
