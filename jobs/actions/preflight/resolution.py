"""Whether a training run can be queued with its specification: files, checkpoint, context, engine and machine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from exgrpo_core.errors import FieldError, Mistake, UserError
from jobs.actions.preflight.chat_template import check_chat_template
from jobs.actions.preflight.data_preview import check_prompts
from jobs.actions.preflight.local_sources import check_benchmarks, check_rows, with_absolute_sources, with_model_source
from jobs.actions.preflight.machine_fit import (
    UNNAMED_RUN,
    check_embedded_device,
    check_gpu_needs,
    check_machine,
    check_memory,
    check_parallelism,
    check_rollout,
    check_run_overrides,
    checked_config,
    config_name,
    find_disk_shortage,
    run_overrides,
)
from jobs.actions.preflight.model_look import remembered_look
from jobs.evaluation.protocols import with_declared_benchmarks
from jobs.machine.engine_environments import EngineEnvironmentError, engine_python
from jobs.runs.checkpoints import ADAPTER_CONFIG
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.runs.lookup import CommandError, NamedCheckpoint, starting_checkpoint
from jobs.runs.people import Role, needs
from jobs.specs.train import SpecError, TrainSpec
from jobs.training.pretrained.model_shapes import check_context


class RunRefusedError(CommandError, SpecError):
    """A run that cannot be queued; the message is the first reason."""

    def __init__(self, spec: TrainSpec, mistakes: Sequence[Mistake], disk_shortage: str = "") -> None:
        """Keep the specification as requested, every reason, and why the disk may become full."""
        super().__init__(mistakes[0], mistakes=mistakes)
        self.spec = spec
        self.disk_shortage = disk_shortage


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason against a run."""

    mistake: Mistake
    is_local: bool
    """It is about this machine alone: a missing file, a model with code, too few GPUs, no engine."""


@dataclass(slots=True)
class Preflight:
    """A specification with its names resolved, and why it cannot run."""

    requested: TrainSpec
    spec: TrainSpec
    """As the worker would read it: the checkpoint's model and local files and your benchmarks by path."""
    start: NamedCheckpoint | None = None
    """The checkpoint that `model.source: RUN@STEP` names."""
    settings: list[str] = field(default_factory=list)
    """Settings of verl that the engine and the specification decide."""
    config: dict[str, Any] | None = None
    """verl's whole configuration; None where it was not composed on this machine."""
    refusals: list[Refusal] = field(default_factory=list)
    """In the order of the checks."""
    notices: list[str] = field(default_factory=list)
    disk_shortage: str = ""
    """Why the disk may become full, "" where it has enough space; such a run is queued all the same."""

    def raise_refusals(self, *, ignores_local: bool = False) -> None:
        """Do nothing if the run can be queued; reasons of this machine alone can be ignored.

        Raises:
            RunRefusedError: It cannot.
        """
        mistakes = [refusal.mistake for refusal in self.refusals if not (ignores_local and refusal.is_local)]
        if mistakes:
            raise RunRefusedError(self.requested, mistakes, self.disk_shortage)

    @contextmanager
    def collecting(self, *, is_local: bool = False) -> Iterator[None]:
        """Add the errors for users that the block raises as refusals."""
        try:
            yield
        except UserError as error:
            mistakes = error.mistakes if isinstance(error, FieldError) else [Mistake(str(error))]
            self.refusals += [Refusal(mistake, is_local) for mistake in mistakes]


@needs(Role.OPERATOR)
def resolve(spec: TrainSpec, runs_root: Path, *, is_quick: bool = False) -> Preflight:
    """Return the resolved specification and every reason against it, without writing anything.

    Args:
        spec: The requested specification.
        runs_root: Folder of the runs that `model.source: RUN@STEP` can name.
        is_quick: Leave out checks that take seconds: reading the checkpoint's files, and verl's check of its settings.
    """
    preflight = Preflight(requested=spec, spec=spec)
    with preflight.collecting():
        if spec.waits_for is not None:
            check_awaited_job(runs_root, spec.waits_for)
        if spec.waits_for is None or not spec.model.source.startswith(f"{spec.waits_for}@"):
            preflight.start = starting_checkpoint(runs_root, spec.model.source, reads_files=not is_quick)
    if preflight.start is not None:
        with preflight.collecting():
            _refuse_adapters(spec, preflight.start)
        preflight.spec = with_model_source(spec, str(preflight.start.policy))
    with preflight.collecting():
        preflight.spec = with_declared_benchmarks(preflight.spec, runs_root)
    with preflight.collecting(is_local=True):
        preflight.spec = with_absolute_sources(preflight.spec)
    with preflight.collecting():
        check_context(preflight.spec)
    if (look := remembered_look(preflight.spec)) is not None:
        preflight.notices.append(look.sentence)
    for name in _chat_fields(preflight.spec):
        with preflight.collecting():
            check_chat_template(name, preflight.spec.model.source, spec.model.revision)
    if spec.engine == "verl":
        with preflight.collecting():
            _check_settings(preflight, runs_root.absolute() / UNNAMED_RUN, is_quick)
        with preflight.collecting():
            check_parallelism(preflight.spec)
    for check in _machine_checks(preflight.spec):
        with preflight.collecting(is_local=True):
            check()
    with preflight.collecting(is_local=spec.verl.gpu_gib is None):
        preflight.notices += check_memory(preflight.spec)
    for refuse, refused in ((_refuse_unnamed_data, spec), (_refuse_no_replay, preflight.spec)):
        with preflight.collecting():
            refuse(refused)
    for check_data in (check_rows, check_benchmarks):
        with preflight.collecting():
            preflight.notices += check_data(preflight.spec)
    with preflight.collecting():
        check_prompts(preflight.spec)
    preflight.disk_shortage = find_disk_shortage(preflight.spec, runs_root)
    preflight.notices += _schedule_notices(preflight.spec)
    return preflight


def _refuse_unnamed_data(spec: TrainSpec) -> None:
    if not spec.data.source.strip():
        text = "name your questions: a Parquet or JSON-lines file in verl's schema, or a Hugging Face data set."
        raise SpecError(text, "data.source")


def _refuse_no_replay(spec: TrainSpec) -> None:
    """Refuse a run that is to replay and never would; runs of earlier versions can be read all the same."""
    algorithm = spec.algorithm
    if algorithm.replays_experience and not algorithm.num_experiential_wanted:
        text = f"expected 0, or at least 1/{algorithm.batch_size}: less of algorithm.batch_size is no question."
        raise SpecError(text, "algorithm.experience_ratio")
    if algorithm.replays_experience and algorithm.start_pass_rate == 1.0:
        text = "expected less than 1 or null: replay starts once Pass@1 is above it."
        raise SpecError(text, "algorithm.start_pass_rate")


def _schedule_notices(spec: TrainSpec) -> Iterator[str]:
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


def _chat_fields(spec: TrainSpec) -> Iterator[str]:
    if spec.data.template == "chat":
        yield "data.template"
    for name, benchmark in spec.validation.benchmarks.items():
        if benchmark.template == "chat":
            yield f"validation.benchmarks.{name}.template"


def _refuse_adapters(spec: TrainSpec, start: NamedCheckpoint) -> None:
    if spec.engine == "verl" and (start.policy / ADAPTER_CONFIG).is_file():
        raise SpecError(
            f"{spec.model.source} holds low-rank adapters, which verl does not merge; write the model "
            f"with `exgrpo export {spec.model.source} FOLDER`, and give FOLDER.",
            "model.source",
        )


def _machine_checks(spec: TrainSpec) -> Iterator[Callable[[], None]]:
    """Yield the checks of this machine: its GPUs, packages and memory."""
    if spec.engine == "verl":
        yield partial(check_machine, spec)
    if spec.engine == "embedded":
        yield partial(check_embedded_device, spec)
    elif not spec.verl.joins_cluster:
        yield partial(check_rollout, spec)
        yield partial(check_gpu_needs, spec)


def check_awaited_job(runs_root: Path, run_id: str) -> None:
    """Refuse to wait for a job that is not there.

    Raises:
        SpecError: It is not.
    """
    try:
        RunDirectory.open(runs_root, run_id)
    except RunDirectoryError:
        raise SpecError(f"expected the id of a job, got {run_id!r}; `exgrpo runs` lists them.", "waits_for") from None


def _check_settings(preflight: Preflight, run_path: Path, is_quick: bool) -> None:
    spec = preflight.spec
    check_run_overrides(spec)
    preflight.settings = run_overrides(spec, run_path)
    try:
        if is_quick:
            engine_python(spec.engine)
        else:
            preflight.config, notice = checked_config(preflight.settings, config_name(spec))
            preflight.notices += [notice] if notice else []
    except EngineEnvironmentError as error:
        if spec.verl.ray.address is None:
            preflight.refusals.append(Refusal(Mistake(str(error)), is_local=True))
        else:
            preflight.notices.append(f"The settings were not checked against verl's configuration: {error}")
