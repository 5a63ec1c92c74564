"""Queueing a judge's job, after a check that its run or file can be judged."""

from pathlib import Path

from jobs.actions import run_actions
from jobs.actions.job_names import name_judge
from jobs.runs.directory import RunDirectory
from jobs.specs.judging import JudgeSpec
from jobs.specs.train import ORACLE_SOURCES, SpecError


def submit_judge(runs_root: Path, spec: JudgeSpec) -> str:
    """Write and queue a judge's job and return its id.

    Raises:
        SpecError: The file is missing, the run is no training run, or the oracle does not know its task.
        RunDirectoryError: There is no such run.
    """
    if spec.judged.file is not None:
        if not spec.judged.file.is_file():
            raise SpecError(f"judged.file: {spec.judged.file} does not exist; give a file of JSON lines.")
        # The worker runs in another folder.
        judged = spec.judged.model_copy(update={"file": spec.judged.file.resolve()})
        spec = spec.model_copy(update={"judged": judged})
    if spec.judged.run_id is not None:
        trained = RunDirectory.open(runs_root, spec.judged.run_id).spec()
        if spec.judge == "oracle" and trained.data.source not in ORACLE_SOURCES:
            raise SpecError(
                f"judge: expected server, since {spec.judged.run_id} trains on {trained.data.source} and the oracle "
                "knows the built-in tasks only; give the address of a judge's server (docs/judging.md)."
            )
    return run_actions.submit(runs_root, name_judge(runs_root, spec))
