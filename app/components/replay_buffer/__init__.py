"""The replay buffer over time, and what other settings would have replayed."""
