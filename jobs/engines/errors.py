"""What an engine raises when it cannot go on."""


class EngineError(RuntimeError):
    """A model, prompt or update that an engine refuses; the message says in one sentence what and what to do."""
