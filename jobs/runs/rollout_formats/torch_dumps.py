"""Miles and slime: `--save-debug-rollout-data` or `--dump-details`, a file of `torch.save` a step, read without torch.

Source: `RolloutManager._save_debug_rollout_data` and `Sample.to_dict` of Miles and of slime.
"""

import pickle
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, number_of, of_mask, step_of
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory

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


_OWN = ("prompt", "response", "reward", "label", "group_index", "response_length", "status")
_ENDS = {"completed": False, "truncated": True}


def recognises(sample: Sample) -> bool:
    """Whether the first file is one of `torch.save` with the samples of a rollout."""
    return sample.head.startswith(b"PK") and b"rollout_id" in sample.head and b"samples" in sample.head


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the samples of each file; one that is still being written is left for later."""
    for file in source.files(".pt"):
        if source.is_new(file):
            yield from _new_samples(source, file)


def _new_samples(source: RolloutSource, file: Path) -> Iterator[RecordedStep]:
    size = file.stat().st_size
    try:
        dump = load_torch_file(file)
        if not isinstance(dump, dict) or not isinstance(dump.get("samples"), list):
            raise ValueError("expected the samples of a rollout.")
        step = step_of(dump, "rollout_id")
    except zipfile.BadZipFile:
        return
    except ValueError as error:
        source.bad.add(file, 0, str(error))
    else:
        samples = enumerate(dump["samples"], 1)
        yield from source.rollouts([file], lambda row, _: [(step, _trajectory(row, file))], lambda _: samples)
    source.advance(file, size)


def _trajectory(sample: Row, file: Path) -> RecordedTrajectory:
    length, mask = sample.get("response_length"), sample.get("loss_mask")
    tokens = sample.get("tokens")
    ids = of_mask(tokens[-length:], mask) if isinstance(tokens, list) and isinstance(length, int) and length else None
    answer, reward = sample.get("label"), sample.get("reward")
    extra = extra_of(sample.get("metadata") or {}, ()) | extra_of(sample, _OWN)
    if isinstance(reward, dict):  # which of them trains is an argument of the run
        extra |= extra_of(reward, ())
    return RecordedTrajectory(
        messages=messages_of(sample, "prompt", is_generated=False) + messages_of(sample, "response", "assistant"),
        reward=None if isinstance(reward, dict) else number_of(sample, "reward"),
        group=None if sample.get("group_index") is None else str(sample["group_index"]),
        answer=None if answer is None else str(answer),
        is_truncated=_ENDS.get(str(sample.get("status"))),
        num_tokens=sum(map(bool, mask)) if isinstance(mask, list) else length,
        token_ids=ids,
        log_probs=of_mask(sample.get("rollout_log_probs"), mask),
        extra=extra
        | {"status": str(sample.get("status")), "kind": "eval" if file.name.startswith("eval_") else "train"},
    )
