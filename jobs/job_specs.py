"""Every kind of job that a run directory can hold, told apart by `kind` in `spec.json`."""

import json
from collections.abc import Callable
from pathlib import Path

import yaml

from jobs.eval_specs import EvalSpec, parse_eval_spec
from jobs.judge_specs import JudgeSpec, parse_judge_spec
from jobs.specs import SpecError, TrainSpec, parse_spec

JobSpec = TrainSpec | EvalSpec | JudgeSpec
"""A specification of any kind; all have `kind`, `name` and `tags`."""

_PARSERS: dict[str, Callable[[object, str], JobSpec]] = {
    "train": parse_spec,
    "eval": parse_eval_spec,
    "judge": parse_judge_spec,
}


def parse_any_spec(content: object, origin: str) -> JobSpec:
    """Check a specification of any kind; without `kind` it is that of a training run.

    Raises:
        SpecError: The kind is unknown, or a field is wrong; one sentence names it and what was expected.
    """
    kind = content.get("kind", "train") if isinstance(content, dict) else "train"
    if not isinstance(kind, str) or kind not in _PARSERS:
        raise SpecError(f"{origin}: kind: expected one of {', '.join(sorted(_PARSERS))}, got {kind!r}.")
    return _PARSERS[kind](content, origin)


def load_any_spec(path: Path) -> JobSpec:
    """Read the specification of any kind that `dump_any_spec` wrote.

    Raises:
        SpecError: The file is missing, is not YAML or JSON, or holds a wrong field.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); give a YAML or JSON file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: is not YAML or JSON ({' '.join(str(error).split())}).") from None
    if not isinstance(content, dict):
        raise SpecError(f"{path}: expected a mapping of fields at the top, got {type(content).__name__}.")
    return parse_any_spec(content, str(path))


def dump_any_spec(spec: JobSpec) -> str:
    """Return the specification as indented JSON that `load_any_spec` reads back unchanged."""
    return json.dumps(spec.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def loop_name(spec: JobSpec) -> str:
    """Return the name under which the worker knows a job's loop: a training run's engine, else the job's kind."""
    return spec.engine if isinstance(spec, TrainSpec) else spec.kind
