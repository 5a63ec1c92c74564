"""Whether a training run can be queued with its specification: the list of checks, and what they find."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from exgrpo.jobs.actions.preflight.data_preview import check_prompts
from exgrpo.jobs.actions.preflight.local_sources import (
    check_benchmarks,
    check_rows,
    with_absolute_sources,
    with_model_source,
)
from exgrpo.jobs.actions.preflight.looks import Look, check_chat_templates, check_context, check_origin, look_at
from exgrpo.jobs.actions.preflight.machine_fit import (
    UNNAMED_RUN,
    check_engine,
    check_machine,
    check_memory,
    check_parallelism,
    check_run_overrides,
    compose_config,
    find_disk_shortage,
    run_overrides,
)
from exgrpo.jobs.actions.preflight.memory_estimate import ResourceEstimate, estimate_resources
from exgrpo.jobs.evaluation.protocols import with_declared_benchmarks
from exgrpo.jobs.machine.engine_environments import EngineEnvironmentError
from exgrpo.jobs.runs.checkpoints import ADAPTER_CONFIG
from exgrpo.jobs.runs.directory import CommandError, RunDirectory, RunDirectoryError
from exgrpo.jobs.runs.lookup import NamedCheckpoint, starting_checkpoint
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.runs.state import refuse_code
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.train import SpecError, TrainSpec
from exgrpo_core.errors import FieldError, Mistake, UserError, joined

AnySpec = TypeVar("AnySpec", TrainSpec, EvalSpec)


class RunRefusedError(CommandError, SpecError):
    """A job that cannot be queued; the message has every reason."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        """Keep every reason."""
        super().__init__(joined(mistakes), mistakes=mistakes)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason against a job."""

    mistake: Mistake
    is_local: bool
    """It is about this machine alone: a missing file, a model with code, too few GPUs, no engine."""


@dataclass
class Checked(Generic[AnySpec]):
    """A specification with its names resolved, and why it cannot run."""

    requested: AnySpec
    spec: AnySpec
    """As the worker would read it: the checkpoint's model and local files and your benchmarks by path."""
    start: NamedCheckpoint | None = None
    """The checkpoint that `model.source: RUN@STEP` names."""
    refusals: list[Refusal] = field(default_factory=list)
    """In the order of the checks."""
    notices: list[str] = field(default_factory=list)

    def raise_refusals(self, *, ignores_local: bool = False) -> None:
        """Do nothing if the job can be queued; reasons of this machine alone can be ignored.

        Raises:
            RunRefusedError: It cannot.
        """
        mistakes = [refusal.mistake for refusal in self.refusals if not (ignores_local and refusal.is_local)]
        if mistakes:
            raise RunRefusedError(mistakes)

    @contextmanager
    def collecting(self, *, is_local: bool = False) -> Iterator[None]:
        """Add the errors for users that the block raises as refusals."""
        try:
            yield
        except UserError as error:
            mistakes = error.mistakes if isinstance(error, FieldError) else [Mistake(str(error))]
            found = [Refusal(mistake, is_local or isinstance(error, EngineEnvironmentError)) for mistake in mistakes]
            self.refusals += [refusal for refusal in found if refusal not in self.refusals]


@dataclass
class Preflight(Checked[TrainSpec]):
    """A training run that was checked, with what it needs."""

    settings: list[str] = field(default_factory=list)
    """Settings of verl that the engine and the specification decide."""
    config: dict[str, Any] | None = None
    """verl's whole configuration; None where it was not composed on this machine."""
    disk_shortage: str = ""
    """Why the disk may become full, "" where it has enough space; such a run is queued all the same."""
    first_step: int = 0
    """The step of the checkpoint that a branch continues from."""
    command: list[str] = field(default_factory=list)
    """What a dry run says that starts the run."""
    prompt: str | None = None
    """In a dry run the first question as the model gets it; None where the data is not on this machine."""
    trained_tokens: dict[str, int] = field(default_factory=dict)
    """In a dry run those of each demonstration by row; empty without any, or where data or tokenizer is elsewhere."""

    @cached_property
    def look(self) -> Look:
        """What is known of the model and this machine."""
        return look_at(self.spec)

    @cached_property
    def needs(self) -> ResourceEstimate:
        """The memory and disk that the run needs."""
        return estimate_resources(self.steps_left(self.spec), self.look.model.shape)

    def steps_left(self, spec: TrainSpec) -> TrainSpec:
        """Return a specification with as many steps as are left to do."""
        return spec.model_copy(update={"num_steps": max(0, spec.num_steps - self.first_step)})


def check_replay(look: Look) -> Iterator[str]:
    """Refuse a run that is to replay and never would, and yield what has no effect without replay.

    Runs of earlier versions can be read all the same.

    Raises:
        SpecError: It is such a run.
    """
    algorithm = look.spec.algorithm
    if algorithm.replays_experience and not algorithm.num_experiential_wanted:
        text = f"expected 0, or at least 1/{algorithm.batch_size}: less of algorithm.batch_size is no question."
        raise SpecError(text, "algorithm.experience_ratio")
    if algorithm.replays_experience and algorithm.start_pass_rate == 1.0:
        text = "expected less than 1 or null: replay starts once Pass@1 is above it."
        raise SpecError(text, "algorithm.start_pass_rate")
    for name in ("buffer_capacity", "buffer_age"):
        if getattr(algorithm, name) is not None and not algorithm.replays_experience:
            yield f"algorithm.{name}: it has no effect without replay; raise algorithm.experience_ratio, or remove it."


def check_schedule(look: Look) -> Iterator[str]:
    """Yield what never comes within the run."""
    spec = look.spec
    updates = spec.num_steps * max(1, spec.algorithm.batch_size // spec.algorithm.mini_batch_size)
    if spec.optim.warmup_steps >= updates:
        yield (
            f"optim.warmup_steps: the learning rate is still rising when the run ends ({spec.optim.warmup_steps:,} "
            f"steps of warm-up, {updates:,} optimizer steps)."
        )
    never = {
        "validation.interval": (spec.validation.interval, "it is scored before and after the run only"),
        "checkpoint_interval": (spec.checkpoint_interval, "a run that is killed begins again"),
        "algorithm.review_interval": (spec.algorithm.review_interval, "no retired question is reviewed"),
    }
    for name, (interval, meaning) in never.items():
        if interval is not None and interval > spec.num_steps:
            yield f"{name}: {interval:,} steps are more than the run's {spec.num_steps:,}, so {meaning}."


def _refuse_adapters(spec: TrainSpec, start: NamedCheckpoint) -> None:
    if spec.engine == "verl" and (start.policy / ADAPTER_CONFIG).is_file():
        raise SpecError(
            f"{spec.model.source} holds low-rank adapters, which verl does not merge; write the model "
            f"with `exgrpo export {spec.model.source} FOLDER`, and give FOLDER.",
            "model.source",
        )


OF_THIS_MACHINE = (check_engine, check_machine, check_memory)
CHECKS: tuple[Callable[[Look], Iterable[str] | None], ...] = (
    check_origin,
    check_context,
    check_chat_templates,
    check_parallelism,
    check_engine,
    check_machine,
    check_memory,
    check_replay,
    check_rows,
    check_benchmarks,
    check_prompts,
    check_schedule,
)
"""Each raises why a run cannot be queued, or returns what a user should know of it."""


@needs(Role.OPERATOR)
def resolve(spec: TrainSpec, runs_root: Path, first_step: int = 0) -> Preflight:
    """Return the resolved specification and every reason against it, without writing anything.

    A branch needs what its steps after `first_step` need.
    What takes seconds is left to `complete`.
    """
    preflight = Preflight(requested=spec, spec=spec, first_step=first_step)
    with preflight.collecting():
        if spec.waits_for is not None:
            check_awaited_job(runs_root, spec.waits_for)
        if spec.waits_for is None or not spec.model.source.startswith(f"{spec.waits_for}@"):
            preflight.start = starting_checkpoint(runs_root, spec.model.source, reads_files=False)
    if preflight.start is not None:
        with preflight.collecting():
            _refuse_adapters(spec, preflight.start)
        preflight.spec = with_model_source(spec, str(preflight.start.policy))
    with preflight.collecting():
        preflight.spec = with_declared_benchmarks(preflight.spec, runs_root)
    preflight.spec = with_absolute_sources(preflight.spec, is_checked=False)  # also those that another machine has
    with preflight.collecting(is_local=True):
        preflight.spec = with_absolute_sources(preflight.spec)
    if spec.engine == "verl":
        with preflight.collecting():
            check_run_overrides(preflight.spec)
            preflight.settings = run_overrides(preflight.spec, runs_root.absolute() / UNNAMED_RUN)
    for check in CHECKS:
        is_named = check is check_memory and spec.verl.gpu_gib is not None  # a GPU that need not be here
        with preflight.collecting(is_local=check in OF_THIS_MACHINE and not is_named):
            preflight.notices += check(preflight.look) or ()
    preflight.disk_shortage = find_disk_shortage(preflight.needs, runs_root)
    return preflight


def complete(preflight: Preflight, runs_root: Path) -> Preflight:
    """Add a look at the running workbench, and what takes seconds: at the checkpoint's files and verl's settings."""
    with preflight.collecting(is_local=True):
        refuse_code(runs_root, preflight.requested.model_dump())
    if preflight.start is not None:
        with preflight.collecting():
            starting_checkpoint(runs_root, preflight.requested.model.source)
    if preflight.settings:
        with preflight.collecting():
            preflight.config, notices = compose_config(preflight.spec, preflight.settings)
            preflight.notices += [notice for notice in notices if notice not in preflight.notices]
    return preflight


def check_awaited_job(runs_root: Path, run_id: str) -> None:
    """Refuse to wait for a job that is not there.

    Raises:
        SpecError: It is not.
    """
    try:
        RunDirectory.open(runs_root, run_id)
    except RunDirectoryError:
        raise SpecError(f"expected the id of a job, got {run_id!r}; `exgrpo runs` lists them.", "waits_for") from None
