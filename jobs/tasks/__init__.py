"""Tasks that are made on this machine, and how answers are graded."""
