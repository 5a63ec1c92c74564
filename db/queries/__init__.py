"""What pages ask, answered in plain rows; one file a page."""
