"""Pickles as plain data: no class or function that a file names is looked up or run, so that it cannot do anything."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

_MAX_VALUES_A_BYTE = 64
"""More are of a file that grows without bounds once its values are written out."""


class NotPlainError(ValueError):
    """Content that is no pickle of plain data."""


class Unknown:
    """Stands for an object that is no plain data, such as a tensor."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass

    def __setitem__(self, *_: object) -> None:
        pass

    def append(self, *_: object) -> None:
        """Take an item of a list's subclass."""


class _DType(Unknown):
    def __init__(self, name: object, *_: object) -> None:
        self.name = str(name)


def _scalar(dtype: object, content: object = b"", *_: object) -> object:
    """Return a number of NumPy's, as rewards often are."""
    if isinstance(dtype, _DType) and isinstance(content, bytes) and np.dtype(dtype.name).kind in "biuf":
        return np.frombuffer(content, dtype.name)[0].item()
    return Unknown()


def _encode(text: object, *_: object) -> object:
    """Return bytes, which old protocols write as a text."""
    return text.encode("latin-1") if isinstance(text, str) else Unknown()


_KNOWN: Mapping[str, Any] = {
    "_codecs.encode": _encode,
    "collections.OrderedDict": dict,
    "numpy.dtype": _DType,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - pickle's own type
        return _KNOWN.get(f"{module}.{name}", Unknown)

    def persistent_load(self, _: object) -> Unknown:
        return Unknown()


def load_plain(file: IO[bytes]) -> object:
    """Return what a pickle holds, `Unknown` for all that is no plain data.

    Raises:
        NotPlainError: It is no pickle, or needs more than plain data.
    """
    try:
        value: object = _PlainUnpickler(file).load()
        if _num_values(value, {}) > _MAX_VALUES_A_BYTE * file.tell():
            raise ValueError("lists that hold each other many times")
    except Exception as error:  # noqa: BLE001 - a pickle of another kind can raise anything
        raise NotPlainError(f"expected a pickle of plain data ({error!r}).") from None
    return value


def _num_values(value: object, known: dict[int, int]) -> int:
    """Return how many values there are to write out, where one that is held twice counts twice."""
    if isinstance(value, str | bytes):
        return 1 + len(value)
    if not isinstance(value, dict | list | tuple):
        return 1
    if id(value) not in known:
        known[id(value)] = 1
        parts = value.values() if isinstance(value, dict) else value
        inner = [part for part in parts if isinstance(part, dict | list | tuple | str | bytes)]
        known[id(value)] = 1 + len(value) + sum(_num_values(part, known) for part in inner)
    return known[id(value)]


def load_torch_file(path: Path) -> object:
    """Return what a file of `torch.save` holds, without torch; tensors are `Unknown`.

    Raises:
        NotPlainError: It holds something else.
        zipfile.BadZipFile: It is not whole.
    """
    with zipfile.ZipFile(path) as archive:
        name = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
        if name is None:
            raise NotPlainError("expected a file of torch.save.")
        if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
            raise NotPlainError("expected a file of torch.save, which compresses nothing.")
        with archive.open(name) as file:
            return load_plain(file)
