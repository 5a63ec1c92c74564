"""The error of a damaged replay buffer."""


class BufferCorruptionError(RuntimeError):
    """A segment or snapshot is missing, cut or altered; the message names the file and what to do."""
