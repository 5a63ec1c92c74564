"""Finds code in responses."""
