"""What a script that logs to W&B finds again under the same names: its settings, and its tables of rollouts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

_COLUMNS = ("Input", "Output", "Expected")
"""Of a table that names none, as in W&B."""
_MEANING = {"input": "prompt", "expected": "answer"}


def as_settings(given: object) -> Mapping[str, Any]:
    """Return settings by name: a mapping, or what has its settings as attributes, such as parsed arguments."""
    if isinstance(given, Mapping):
        return given
    if hasattr(given, "__dict__"):
        return vars(given)
    try:
        return dict(given or {})  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return {"config": given}


class Config(MutableMapping[str, Any]):
    """The settings of a run, by item or by attribute; what is set after the start is recorded too."""

    _values: dict[str, Any]
    _record: Callable[[Mapping[str, Any]], None]

    def __init__(self, values: Mapping[str, Any], record: Callable[[Mapping[str, Any]], None]) -> None:
        self.__dict__.update(_values=dict(values), _record=record)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any setting
        return self._values[name]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any setting
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"config: has no {name}.") from None

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401 - any setting
        self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401 - any setting
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)

    def update(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - as in dict
        """Set several at once."""
        named.pop("allow_val_change", None)
        changed = {name: value for each in (*given, named) for name, value in as_settings(each).items()}
        self._values.update(changed)
        self._record(changed)

    def take(self, values: Mapping[str, Any]) -> None:
        """Set values that are recorded already."""
        self._values.update(values)


class Table:
    """Rows of rollouts. `log` records each as a trajectory, once, however often its table is logged.

    Columns have the names that a trajectory's mapping has, in small or capital letters. `Input`, `Output` and
    `Expected` are prompt, response and answer.
    """

    def __init__(
        self,
        columns: Sequence[object] | None = None,
        data: Iterable[Sequence[Any]] | None = None,
        dataframe: Any = None,  # noqa: ANN401 - a pandas frame
    ) -> None:
        self.columns = [str(name) for name in (_COLUMNS if columns is None else columns)]
        self.data = [list(row) for row in data or ()]
        self._num_taken = 0
        if dataframe is not None:
            self.columns = [str(name) for name in dataframe.columns]
            self.data = [list(row) for row in dataframe.itertuples(index=False, name=None)]

    def add_data(self, *row: Any) -> None:  # noqa: ANN401 - any values
        """Add a row."""
        self.data.append(list(row))

    def take_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows that were not taken before, by column."""
        names = [_MEANING.get(name.lower(), name.lower()) for name in self.columns]
        while self._num_taken < len(self.data):
            self._num_taken += 1
            yield dict(zip(names, self.data[self._num_taken - 1], strict=False))
