"""Memory: the database, an index of the run directories that can be dropped and rebuilt at any time."""
