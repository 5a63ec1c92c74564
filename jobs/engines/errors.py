"""The error of an engine that cannot continue."""


class EngineError(RuntimeError):
    """A model, prompt or update that an engine refuses; one sentence says what is wrong and what to do."""
