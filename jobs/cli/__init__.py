"""The `exgrpo` command."""
