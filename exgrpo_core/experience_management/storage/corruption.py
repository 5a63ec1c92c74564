"""The error of a damaged replay buffer."""


class BufferCorruptionError(RuntimeError):
    """A segment or snapshot is missing, cut or altered; the message names the file and what to do."""


ODD_CONTENT = (IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What reading a file raises whose checksum is right, though another program wrote it."""
