"""Starts queued runs, watches them, stops them, and keeps the database's index of them up to date."""
