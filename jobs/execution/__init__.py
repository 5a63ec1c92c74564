"""What starts, watches and does the work of runs, and tells of it."""
