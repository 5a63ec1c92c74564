"""Benchmarks: each prints its table and then one JSON line with figures and targets."""
