"""Specifications of jobs."""
