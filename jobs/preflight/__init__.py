"""What a job would need, and whether it can start, before it does."""
