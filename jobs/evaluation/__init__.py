"""Benchmarks: declared protocols, sampled answers, scores that can be compared; judges of chains of thought."""
