"""The machine, the supervisor and what users asked for."""
