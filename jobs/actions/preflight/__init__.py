"""The needs of a job and checks before it is queued."""
