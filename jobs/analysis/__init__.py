"""What recorded trajectories show: code in them, entropy against validity, and how both move over time."""
