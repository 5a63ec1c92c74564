"""The command that trains."""

from pathlib import Path
from typing import Annotated

import typer

from exgrpo.jobs.actions.preflight.dry_run import describe_plan, plan_record, plan_run
from exgrpo.jobs.actions.preflight.launch_scripts import ScriptKind, write_script
from exgrpo.jobs.actions.preflight.memory_estimate import estimate_resources
from exgrpo.jobs.actions.preflight.resolution import resolve
from exgrpo.jobs.actions.queueing import queue_checked
from exgrpo.jobs.actions.run_actions import without_place
from exgrpo.jobs.actions.studies.running import estimate_step_seconds
from exgrpo.jobs.cli.following import exit_as, follow_unless
from exgrpo.jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    Detach,
    RunsRoot,
    Settings,
    print_json,
    print_result,
    print_status,
)
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.machine.hardware import GIB, GpuType, find_gpu_type
from exgrpo.jobs.runs.report import describe_report, report_run
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset, load_spec, parse_spec
from exgrpo.jobs.training.pretrained.model_shapes import model_shape

DEFAULT_PRESETS = {"embedded": "chains-exgrpo", "verl": "qwen-0.5b"}
"""For each engine, the preset to start from if none is named."""


def train(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    preset: Annotated[
        str | None,
        typer.Option(help=f"Preset to start from; if none: {' or, for verl, '.join(DEFAULT_PRESETS.values())}."),
    ] = None,
    spec: Annotated[Path | None, typer.Option(help="YAML or JSON file with the specification.")] = None,
    engine: Annotated[str | None, typer.Option(help="embedded or verl. Default: from the preset or file.")] = None,
    settings: Settings = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="KEY=VALUE",
            help="Change a setting of verl's own configuration, as KEY=VALUE. Repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print settings, command, memory and disk, and start nothing.")
    ] = False,
    script: Annotated[
        ScriptKind | None,
        typer.Option(help="Print a script that starts the run on machines with GPUs, and start nothing."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="TYPE", help='GPU to estimate for, such as "H100 80 GB", on other machines.')
    ] = None,
    detach: Detach = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Train a model. Ctrl-C stops the run with a checkpoint. A second Ctrl-C leaves the run running."""
    chosen = _with_overrides(_read_spec(preset, spec, engine, settings or []), overrides or [])
    if gpu is not None:
        chosen = _for_gpu(chosen, find_gpu_type(gpu), is_started=script is None and not dry_run)
    if script is not None:
        typer.echo(write_script(chosen, runs_root, script).text, nl=False)
        return
    if dry_run:
        plan = plan_run(chosen, runs_root)
        print_json(plan_record(plan)) if as_json else print_result(describe_plan(plan))
        return
    checked = resolve(chosen, runs_root)
    run_id = queue_checked(runs_root, checked)
    for notice in checked.notices:
        print_status(notice)
    state = follow_unless(detach, runs_root, database_url, run_id, as_json)
    with open_fresh_index(runs_root, database_url) as database:
        report = report_run(database, run_id)
    report["peak_memory"] = state.heartbeat.peak_memory if state.heartbeat else 0
    print_json(report) if as_json else print_result(describe_report(report))
    exit_as(state)


def _read_spec(preset: str | None, path: Path | None, engine: str | None, settings: list[str]) -> TrainSpec:
    if preset is not None and path is not None:
        raise SpecError("expected one of them; a file may name its preset in `extends`.", "--preset", "--spec")
    default = DEFAULT_PRESETS.get(engine or "embedded", DEFAULT_PRESETS["embedded"])
    spec = load_spec(path) if path is not None else load_preset(preset or default)
    spec = spec.model_copy(update={"tags": without_place(spec.tags)})  # the file of a study's run
    return apply_settings(spec, [*([f"engine={engine}"] if engine else []), *settings])


def _for_gpu(spec: TrainSpec, gpu: GpuType, *, is_started: bool) -> TrainSpec:
    """Return the specification with this GPU's memory; say what the run needs of it and how long it takes."""
    if spec.engine != "verl" or is_started:
        raise SpecError("expected the verl engine, and --script or --dry-run; add `--engine verl` and one.", "--gpu")
    spec = apply_settings(spec, [f"verl.gpu_gib={gpu.gib}"])
    shape = model_shape(spec.model.source, spec.model.revision)
    needs, seconds = estimate_resources(spec, shape), estimate_step_seconds(spec)
    if needs.memory is not None:
        each = None if seconds is None else seconds * gpu.slowness
        hours = "" if each is None else f", {each:,.0f} s per step, {each * spec.num_steps / 3600:,.1f} h in all"
        memory = f"up to {needs.memory / GIB:.1f} of {gpu.gib:g} GiB on each"
        print_status(f"On {spec.num_gpus} x {gpu.name}, coarsely: {memory}{hours}.")
    return spec


def _with_overrides(spec: TrainSpec, overrides: list[str]) -> TrainSpec:
    if not overrides:
        return spec
    content = spec.model_dump(mode="json")
    content["verl"]["overrides"] += overrides
    return parse_spec(content, "--override")
