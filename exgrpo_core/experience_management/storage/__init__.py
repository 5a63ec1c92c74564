"""How the replay buffer lies in memory and on disk."""
