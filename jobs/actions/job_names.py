"""Names of evaluations and judges that nobody named: what is scored or judged, so that lists tell them apart."""

import re
from pathlib import Path

from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.specs.evaluation import EvalSpec
from jobs.specs.judging import JudgeSpec
from jobs.specs.train import MAX_NAME_CHARACTERS

_UNNAMED = {"evaluation", "judge"}


def name_evaluation(runs_root: Path, spec: EvalSpec) -> EvalSpec:
    """Return the evaluation named after model and benchmarks, such as `score arc step 100 on math500 + aime24`."""
    if spec.name not in _UNNAMED:
        return spec
    model = Path(spec.model.source).name
    if spec.model.run_id is not None:
        model = f"{_run_name(runs_root, spec.model.run_id)} step {spec.model.step}"
    benchmarks = " + ".join(choice.name for choice in spec.benchmarks)
    return spec.model_copy(update={"name": _allowed(f"score {model} on {benchmarks}")})


def name_judge(runs_root: Path, spec: JudgeSpec) -> JudgeSpec:
    """Return the judge named after who judges what, such as `judge arc by the oracle`."""
    if spec.name not in _UNNAMED:
        return spec
    judged = spec.judged
    target = judged.file.name if judged.file is not None else _run_name(runs_root, judged.run_id or "")
    judge = "the oracle" if spec.server is None else spec.server.model
    return spec.model_copy(update={"name": _allowed(f"judge {target} by {judge}")})


def _run_name(runs_root: Path, run_id: str) -> str:
    try:
        return str(RunDirectory.open(runs_root, run_id).read_run_info()["name"])
    except (RunDirectoryError, KeyError):
        return run_id


def _allowed(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9 ._+@-]", "-", name)[:MAX_NAME_CHARACTERS].rstrip()
