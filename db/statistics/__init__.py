"""Statistics that queries, jobs and pages share."""
