"""Judging chains of thought: a language model on a server, or an oracle, decides which ones are valid."""
