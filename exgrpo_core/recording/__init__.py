"""Rollouts of any loop: their types, and the recorder that writes them into a run directory. No torch, no server."""
