"""Errors that are meant for the user: their text is one sentence that says what to do."""


class UserError(Exception):
    """Something failed for a reason that the user can do something about."""


class InputError(UserError):
    """What the user gave is not usable; the sentence names the field or file and what was expected."""
