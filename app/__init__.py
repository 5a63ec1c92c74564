"""Seeing and steering: the workbench in the browser."""
