"""The machine, the supervisor and the audit log of what users did."""
