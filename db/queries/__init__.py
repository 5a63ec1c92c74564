"""What pages ask, answered in plain rows; one file per page."""
