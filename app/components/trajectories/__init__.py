"""Trajectories, their lineage, and the audit of selections."""
