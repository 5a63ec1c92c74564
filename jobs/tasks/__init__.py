"""Tasks that are made on this machine."""
