"""Every kind of job that a run directory can hold, distinguished by `kind` in `spec.json`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from exgrpo.jobs.specs.base import Spec, checked, map_files, wrong_types
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.judging import JudgeSpec
from exgrpo.jobs.specs.train import SpecError, TrainSpec
from exgrpo_core.bounded_json import UnreadableFileError, parse_json, read_plain
from exgrpo_core.config import MAX_ROLLOUTS
from exgrpo_core.errors import Mistake, shown


class RecordedSpec(Spec):
    """What `exgrpo_core.recording.start` writes."""

    kind: Literal["recorded"]
    name: str
    """What people call the run."""
    tags: tuple[str, ...] = ()
    config: dict[str, Any]
    """The settings of the loop, as it gave them."""


JobSpec = TrainSpec | EvalSpec | JudgeSpec | RecordedSpec
"""A specification of any kind; all have `kind`, `name` and `tags`."""

_MODELS: dict[str, type[JobSpec]] = {
    "train": TrainSpec, "eval": EvalSpec, "judge": JudgeSpec, "recorded": RecordedSpec
}  # fmt: skip


def parse_any_spec(content: object, origin: str) -> JobSpec:
    """Check a specification of any kind; without `kind` it is that of a training run.

    Raises:
        SpecError: The kind is unknown, or a field is wrong; one sentence names it and what was expected.
    """
    kind = content.get("kind", "train") if isinstance(content, dict) else "train"
    if not isinstance(kind, str) or kind not in _MODELS:
        mistake = Mistake(f"expected one of {', '.join(sorted(_MODELS))}, got {kind!r}.", "kind")
        raise SpecError(f"{origin}: {mistake}", mistakes=[mistake])
    return checked(_MODELS[kind], content, origin)


def shape_mistakes(content: object) -> tuple[Mistake, ...]:
    """Return the mistakes that keep a specification of any kind from being shown: a sentence each, none of most.

    Fields of other versions and most values out of range are no such mistakes: the run was made, and can be looked at.
    """
    if not isinstance(content, dict):
        return (Mistake(f"expected a mapping of fields, got {shown(content)}"),)
    kind = content.get("kind", "train")
    if not isinstance(kind, str) or kind not in _MODELS:
        return (Mistake(f"expected one of {', '.join(sorted(_MODELS))}, got {str(kind)[:40]!r}", "kind"),)
    return wrong_types(_MODELS[kind], content) or (_countless_buckets(content) if kind == "train" else ())


def _countless_buckets(content: Mapping[str, Any]) -> tuple[Mistake, ...]:
    """Return a mistake of a training run of which no page could draw the buckets."""
    number = content.get("algorithm", {}).get("rollouts_per_question", MAX_ROLLOUTS)
    if 2 <= number <= MAX_ROLLOUTS:
        return ()
    return (Mistake(f"expected 2 to {MAX_ROLLOUTS:,}, got {number}", "algorithm.rollouts_per_question"),)


def from_folder(content: Any, folder: Path) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return what `dump_spec` wrote into a run's folder with the whole paths of its files."""
    return map_files(content, lambda file: os.path.abspath(folder / file) if file.startswith("../") else file)


def load_any_spec(path: Path, crc: int | None = None) -> JobSpec:
    """Read the specification of any kind that `dump_spec` wrote, with this CRC-32 where it is known.

    Raises:
        SpecError: The file is missing, is not JSON, differs from what was written, or holds a wrong field.
    """
    try:
        content = read_plain(path)
        if crc not in (None, crc32(content)):
            raise SpecError(f"{path}: differs from what was written (checksum); use another copy of the run.")
        value = from_folder(parse_json(content), path.parent)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); use another copy of the run.") from None
    except UnreadableFileError as error:
        raise SpecError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    return parse_any_spec(value, str(path))


def loop_name(spec: JobSpec) -> str:
    """Return the name under which the worker knows a job's loop: by a training run's engine, else by the job's kind.

    An evaluation that vLLM generates for has a name of its own, since it runs in another environment.
    """
    if isinstance(spec, EvalSpec) and spec.generator == "vllm":
        return "eval vllm"
    return spec.engine if isinstance(spec, TrainSpec) else spec.kind


def local_gpus(spec: JobSpec) -> int:
    """Return how many GPUs of this machine a job uses, if the machine has some."""
    if isinstance(spec, JudgeSpec | RecordedSpec) or spec.model.device == "cpu":
        return 0
    if isinstance(spec, EvalSpec):
        return 0 if spec.server is not None else spec.num_gpus
    if spec.engine != "verl":
        return 1
    if spec.verl.joins_cluster:
        return 0
    return spec.gpus_of_a_machine
