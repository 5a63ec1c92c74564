"""Training backends: each holds the model while the algorithm drives it."""
