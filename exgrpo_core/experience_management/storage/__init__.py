"""The layout of the replay buffer in memory and on disk."""
