"""What a running job writes down, and the reader of it."""
