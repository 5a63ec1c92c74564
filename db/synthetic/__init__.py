"""Made-up runs, marked as such, to try pages at scale."""
