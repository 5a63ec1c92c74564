"""Names under which the plug-in enters verl; verl itself is not needed to read them."""

AGENT_NAME = "exgrpo_prompt_tokens"
"""The agent loop that generates from a question's prompt tokens."""
