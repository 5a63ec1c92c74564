"""Every kind of job that a run directory can hold, distinguished by `kind` in `spec.json`."""

from collections.abc import Callable
from pathlib import Path

from jobs.specs.evaluation import EvalSpec, parse_eval_spec
from jobs.specs.judging import JudgeSpec, parse_judge_spec
from jobs.specs.train import SpecError, TrainSpec, parse_spec, read_mapping

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
    """Read the specification of any kind that `dump_spec` wrote.

    Raises:
        SpecError: The file is missing, is not YAML or JSON, or holds a wrong field.
    """
    return parse_any_spec(read_mapping(path), str(path))


def loop_name(spec: JobSpec) -> str:
    """Return the name under which the worker knows a job's loop: by a training run's engine, else by the job's kind.

    An evaluation that vLLM generates for has a name of its own, since it runs in another environment.
    """
    if isinstance(spec, EvalSpec) and spec.generator == "vllm":
        return "eval vllm"
    if not isinstance(spec, TrainSpec):
        return spec.kind
    return spec.engine if spec.sft is None else f"{spec.engine} sft"
