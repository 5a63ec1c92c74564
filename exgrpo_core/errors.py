"""Errors that are meant for the user: their text is one sentence that says what to do."""


class UserError(Exception):
    """Something failed for a reason that the user can do something about."""


class InputError(UserError):
    """What the user gave is not usable; the sentence names the field or file and what was expected."""


class EngineError(RuntimeError):
    """A model, prompt or update that an engine refuses; one sentence says what is wrong and what to do."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error that another library raised, its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
