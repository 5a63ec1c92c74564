"""Judging chains of thought: a language model behind a server, or an exact oracle, says which ones are valid."""
