"""The process of one job."""
