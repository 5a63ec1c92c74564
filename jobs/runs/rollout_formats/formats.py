"""The formats that can be opened, and which of them a path holds."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from exgrpo_core.errors import InputError
from exgrpo_core.recording.rows import RecordedStep
from jobs.runs.rollout_formats import (
    inspect_logs,
    json_lines,
    lm_eval,
    metric_exports,
    nemo_rl,
    torch_dumps,
    traces,
    trl,
    verifiers_results,
    verl_dumps,
)
from jobs.runs.rollout_formats.source import RolloutSource, Sample


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
    has_evaluations: bool = False
    """Whether files of evaluations lie beside those of training."""


FORMATS = (
    RolloutFormat("verl's rollout or validation dumps", verl_dumps.recognises, verl_dumps.read),
    RolloutFormat("TRL's completions", trl.recognises, trl.read),
    RolloutFormat("traces of prime-rl or verifiers", traces.recognises, traces.read, has_evaluations=True),
    RolloutFormat("results of verifiers", verifiers_results.recognises, verifiers_results.read),
    RolloutFormat("rollout dumps of Miles or slime", torch_dumps.recognises, torch_dumps.read, has_evaluations=True),
    RolloutFormat("step files of NeMo-RL", nemo_rl.recognises, nemo_rl.read, has_evaluations=True),
    RolloutFormat("samples of lm-eval", lm_eval.recognises, lm_eval.read),
    RolloutFormat("logs of Inspect", inspect_logs.recognises, inspect_logs.read, "inspect_ai"),
    RolloutFormat("messages, or JSON lines of OpenRLHF, ms-swift or Miles", json_lines.recognises, json_lines.read),
    RolloutFormat("metrics of W&B, MLflow or JSON lines", metric_exports.recognises, metric_exports.read),
)
"""The first that recognises a path reads it."""

_MAX_NAMED = 5
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
            what = "the folder has no files with content" if path.is_dir() else "the file is empty"
            raise UnknownRolloutsError(f"{path}: {what}; name the folder or file that has the rollouts.")
        found = next((entry for entry in FORMATS if entry.recognises(sample)), None)
    except OSError as error:
        raise UnknownRolloutsError(f"{path}: cannot be read ({error.strerror or error}); name another path.") from None
    if found is None:
        titles = "; ".join(entry.title for entry in FORMATS)
        raise UnknownRolloutsError(
            f"{path}: holds no rollouts of a known format ({titles}); --format describes others."
        )
    if found.package and find_spec(found.package) is None:
        name = found.package.replace("_", "-")
        raise MissingPackageError(f"{path}: {found.title} are read by their own package; run `pip install {name}`.")
    return found


def formats_in(folder: Path) -> dict[Path, RolloutFormat]:
    """Return the files and folders right in a folder whose rollouts are of several formats, each with its own.

    It is empty where they are of one format, or `folder` is none. Of names that differ by their numbers one is looked
    at for all; metrics may lie beside rollouts.
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
    return found if len(titles) > 1 else {}


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
