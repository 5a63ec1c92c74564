"""Starting a job of any kind again: reading its specification, and queueing with the checks of its kind."""

from pathlib import Path

from jobs.actions import run_actions
from jobs.actions.evaluations import submit_evaluation
from jobs.actions.judgements import submit_judge
from jobs.runs.lookup import CommandError, open_run
from jobs.specs.any_job import JobSpec
from jobs.specs.evaluation import EvalSpec
from jobs.specs.judging import JudgeSpec
from jobs.specs.train import SpecError


def read_job_spec(runs_root: Path, run_id: str) -> JobSpec:
    """Return the specification of a job, to start another from.

    Raises:
        CommandError: No such job, or its specification cannot be read.
    """
    try:
        return open_run(runs_root, run_id).job_spec()
    except SpecError as error:
        raise CommandError(str(error)) from None


def submit_job(runs_root: Path, spec: JobSpec, *, parent_run_id: str | None = None) -> str:
    """Write and queue a job and return its id; `parent_run_id` is the training run that one of training is copied from.

    Raises:
        SpecError: It names a file, run or benchmark that does not exist.
        CommandError: The runs root cannot be written, or the job could not run.
    """
    if isinstance(spec, EvalSpec):
        return submit_evaluation(runs_root, spec)
    if isinstance(spec, JudgeSpec):
        return submit_judge(runs_root, spec)
    return run_actions.submit(runs_root, spec, parent_run_id=parent_run_id)
