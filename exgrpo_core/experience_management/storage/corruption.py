"""What a damaged replay buffer raises."""


class BufferCorruptionError(RuntimeError):
    """A segment or snapshot is missing, cut or altered; the message names the file and what to do."""
