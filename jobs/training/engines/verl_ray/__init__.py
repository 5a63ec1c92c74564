"""ExGRPO inside verl's trainer, on Ray."""
