"""What pages show, as rows for programs: one table that serves the command line and agents."""
