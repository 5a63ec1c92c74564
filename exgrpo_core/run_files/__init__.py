"""The files of a run directory, as every program that records writes them."""
