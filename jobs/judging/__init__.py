"""Judging chains of thought: a language model on a server, or an exact oracle, decides which ones are valid."""
