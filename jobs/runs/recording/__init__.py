"""The events and files that a running job writes, and their reader."""
