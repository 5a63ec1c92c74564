"""The formats that can be opened, and which of them a path holds."""

import codecs
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from exgrpo.jobs.runs.rollout_formats import (
    agent_sessions,
    art_trajectories,
    inspect_logs,
    json_lines,
    lm_eval,
    metric_exports,
    mlflow_traces,
    nemo_rl,
    skyrl_dumps,
    torch_dumps,
    traces,
    trackio_traces,
    trl,
    verifiers_results,
    verl_dumps,
)
from exgrpo.jobs.runs.rollout_formats.rollout_files import bare
from exgrpo.jobs.runs.rollout_formats.source import WHOLE, Part, RolloutSource, Sample, training_and_evaluation
from exgrpo_core.bounded_json import open_plain
from exgrpo_core.errors import InputError
from exgrpo_core.recording.rows import RecordedStep


class UnknownRolloutsError(InputError):
    """A path that is missing, empty, or of no format that can be opened; one sentence says which."""


class MissingPackageError(InputError):
    """Rollouts of a format whose package is not installed; the sentence has the command."""


@dataclass(frozen=True, slots=True)
class RolloutFormat:
    """A format by the words that users know it by."""

    title: str
    recognises: Callable[[Sample], bool]
    read: Callable[[RolloutSource], Iterator[RecordedStep]]
    """Yields what the source has not handed out before; rows that cannot be read are given to `source.bad`."""
    package: str = ""
    """The import name of a package that reads it, which the workbench does not bring."""
    parts: Callable[[Path], Sequence[Part]] = lambda _: (WHOLE,)
    """What of a path is a run of its own; a later call may return more."""


FORMATS = (
    RolloutFormat("verl's rollout or validation dumps", verl_dumps.recognises, verl_dumps.read),
    RolloutFormat("TRL's completions", trl.recognises, trl.read),
    RolloutFormat("traces of prime-rl or verifiers", traces.recognises, traces.read, parts=traces.parts),
    RolloutFormat("results of verifiers", verifiers_results.recognises, verifiers_results.read),
    RolloutFormat(
        "rollout dumps of Miles or slime", torch_dumps.recognises, torch_dumps.read, parts=training_and_evaluation
    ),
    RolloutFormat("step files of NeMo-RL", nemo_rl.recognises, nemo_rl.read, parts=training_and_evaluation),
    RolloutFormat(
        "trajectories of ART", art_trajectories.recognises, art_trajectories.read, parts=art_trajectories.parts
    ),
    RolloutFormat("evaluations of SkyRL", skyrl_dumps.recognises, skyrl_dumps.read),
    RolloutFormat("samples of lm-eval", lm_eval.recognises, lm_eval.read, parts=lm_eval.parts),
    RolloutFormat("logs of Inspect", inspect_logs.recognises, inspect_logs.read, "inspect_ai", inspect_logs.parts),
    RolloutFormat(
        "plain rows, messages, or JSON lines of OpenRLHF, ms-swift or Miles", json_lines.recognises, json_lines.read
    ),
    RolloutFormat("traces of Trackio", trackio_traces.recognises, trackio_traces.read, parts=trackio_traces.parts),
    RolloutFormat("traces of MLflow", mlflow_traces.recognises, mlflow_traces.read, parts=mlflow_traces.parts),
    RolloutFormat("sessions of agents", agent_sessions.recognises, agent_sessions.read, parts=agent_sessions.parts),
    RolloutFormat("metrics of W&B, MLflow or JSON lines", metric_exports.recognises, metric_exports.read),
)
"""The first that recognises a path reads it."""

_ORIGINALS = {"sessions of agents": "traces of Trackio"}
"""Formats whose files next to those of another one are its copies."""
_MAX_NAMED = 5
_PACKED = {
    b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK": "zip",
    b"\x04\x22\x4d\x18": "lz4", b"7z\xbc\xaf": "7z", b"Rar!": "rar", b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"\x1f\x9d": "compress", b"\x5d\x00\x00": "lzma", b"LZIP": "lzip",
}  # fmt: skip
"""How compressed files begin. Of those of gzip and zstd, rows of text are unpacked while they are read."""
_SIGN_BYTES = 8
_DIGITS = re.compile(r"\d+")


def find_format(path: Path) -> RolloutFormat:
    """Return the format of the rollouts at a path.

    Raises:
        UnknownRolloutsError: It is missing, cannot be read, has no files, or no format recognises it.
        MissingPackageError: The format's package is not installed.
    """
    try:
        sample = Sample(path)
        if not sample.head:
            raise UnknownRolloutsError(f"{path}: {_why_empty(path)}; name the folder or file that has the rollouts.")
        _check_encoding(sample)
        found = next((entry for entry in FORMATS if entry.recognises(sample)), None)
    except OSError as error:
        raise UnknownRolloutsError(f"{path}: cannot be read ({error.strerror or error}); name another path.") from None
    start = _packed_head(sample) if found is None else b""
    if packed := next((kind for sign, kind in _PACKED.items() if start.startswith(sign)), ""):
        raise UnknownRolloutsError(f"{path}: is compressed ({packed}); unpack it and name what is in it.")
    if found is None:
        titles = "; ".join(entry.title for entry in FORMATS)
        raise UnknownRolloutsError(
            f"{path}: holds no rollouts of a known format ({titles}); --format describes others."
        )
    if found.package and find_spec(found.package) is None:
        name = found.package.replace("_", "-")
        raise MissingPackageError(f"{path}: {found.title} are read by their own package; run `pip install {name}`.")
    return found


def _check_encoding(sample: Sample) -> None:
    """Refuse text in UTF-16, because some of its lines can be read by chance."""
    first = next((file for file in sample.files if file.stat().st_size), sample.path)
    is_text = bare(first).suffix in {".csv", ".json", ".jsonl"}
    if sample.head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or (is_text and b"\0" in sample.head[:400]):
        raise UnknownRolloutsError(f"{first}: is text in UTF-16 or UTF-32; save it as UTF-8.")


def _packed_head(sample: Sample) -> bytes:
    """Return the first bytes of the first file that has some, as they are in the file."""
    first = next((file for file in sample.files if file.stat().st_size), sample.path)
    with open_plain(first) as opened:
        return opened.read(_SIGN_BYTES)


def _why_empty(path: Path) -> str:
    return "the folder has no files with content" if path.is_dir() else "the file is empty"


def formats_in(folder: Path) -> dict[Path, RolloutFormat]:
    """Return the files and folders right in a folder whose rollouts are of several formats, each with its own.

    It is empty where they are of one format, or `folder` is none. Of names that differ by their numbers one is looked
    at for all; metrics may lie next to rollouts.
    """
    found: dict[Path, RolloutFormat] = {}
    by_kind: dict[str, RolloutFormat | None] = {}
    for child in sorted(folder.iterdir() if folder.is_dir() else ()):
        kind = _DIGITS.sub("", child.name)
        if kind not in by_kind:
            try:
                by_kind[kind] = None if child.name.startswith(".") else find_format(child)
            except InputError:
                by_kind[kind] = None
        if (entry := by_kind[kind]) is not None:
            found[child] = entry
    titles = {entry.title for entry in found.values()} - {FORMATS[-1].title}
    copies = {title for title in titles if _ORIGINALS.get(title) in titles}
    own = {child: entry for child, entry in found.items() if entry.title not in copies}
    return own if len(titles - copies) > 1 else {}


def find_only_format(path: Path) -> RolloutFormat:
    """Return the format of a path that is to be one run.

    Raises:
        UnknownRolloutsError: As `find_format`, or what is in the folder has several formats.
        MissingPackageError: As `find_format`.
    """
    if parts := formats_in(path):
        what = "; ".join(f"{part.name}: {entry.title}" for part, entry in list(parts.items())[:_MAX_NAMED])
        raise UnknownRolloutsError(f"{path}: holds rollouts of several formats ({what}); name one of them.")
    return find_format(path)
