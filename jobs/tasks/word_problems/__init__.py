"""Word problems: generated English stories, and an oracle that reads the chain of thought of a response."""
