"""Figure (a) of the paper: collect, partition and select experience. NumPy and the standard library only."""
