"""Errors that are meant for the user: their text is one sentence that says what to do."""

from collections.abc import Sequence


class UserError(Exception):
    """Something failed for a reason that the user can do something about."""


class InputError(UserError):
    """What the user gave is not usable; the sentence names the field or file and what was expected."""


class Mistake(str):
    """A sentence on what is wrong: the names of `fields`, then `text`, what was expected."""

    fields: tuple[str, ...]
    text: str

    def __new__(cls, text: str, *fields: str) -> "Mistake":
        """Return the sentence, which is only `text` if no field is named."""
        mistake = super().__new__(cls, f"{', '.join(fields)}: {text}" if fields else text)
        mistake.fields, mistake.text = fields, text
        return mistake


def joined(mistakes: Sequence[Mistake]) -> str:
    """Return sentences one after another, each with a full stop or question mark before the next."""
    return " ".join(
        [*(one if one.endswith("?") else f"{one.removesuffix('.')}." for one in mistakes[:-1]), *mistakes[-1:]]
    )


class FieldsNamedError(Exception):
    """Something went wrong with what is running; `fields` are those of the specification to change, where known."""

    fields: tuple[str, ...] = ()

    def __init__(self, text: str, *fields: str) -> None:
        """Begin the message with the names of `fields`."""
        super().__init__(Mistake(text, *fields))
        self.fields = fields or self.fields


class FieldError(FieldsNamedError, InputError, ValueError):
    """Values that cannot be used; `mistakes` has a sentence on each thing that is wrong."""

    def __init__(self, text: str, *fields: str, mistakes: Sequence[Mistake] = ()) -> None:
        """Begin the message with the names of `fields`; with several `mistakes` the message is `text`."""
        self.mistakes = tuple(mistakes) or (Mistake(text, *fields),)
        super().__init__(text if mistakes else str(self.mistakes[0]))
        self.fields = tuple(field for mistake in self.mistakes for field in mistake.fields)
        """The fields that are wrong, in the order of the mistakes."""


class NotRecordedError(AttributeError):
    """Code asked for a column that the run did not record."""


class EngineError(FieldsNamedError, RuntimeError):
    """A model, prompt or update that an engine refuses; one sentence says what is wrong and what to do."""


class StoppedError(Exception):
    """A requested stop ended what was under way, since it did not end by itself."""


class DamagedStateError(EngineError):
    """What an engine saved has changed since; the sentence names the file."""


def shown(value: object) -> str:
    """Return a value as messages show what they got."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


NUM_TOLD = 3
"""Bad rows that one error names."""


def first_few(sentences: Sequence[str], num: int) -> str:
    """Return the first `NUM_TOLD` sentences on bad rows, and how many more of all `num` rows are bad."""
    told = sentences[:NUM_TOLD]
    more = [f"And {num - len(told):,} more rows."] if num > len(told) else []
    return " ".join([*told, *more])


def first_line(error: BaseException) -> str:
    """Return the first line of an error that another library raised, after a colon with the next; else its type."""
    first, *others = str(error).strip().splitlines() or [type(error).__name__]
    return f"{first} {others[0].strip()}" if others and first.endswith(":") else first
