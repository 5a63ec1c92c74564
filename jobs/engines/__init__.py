"""What holds the model while the algorithm drives it."""
