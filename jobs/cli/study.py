"""The commands on studies: the paper's tables as matrices of runs, reports on them, and sweeps over listed values."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from exgrpo.db.statistics import MeanInterval
from exgrpo.jobs.actions.studies import sweeps
from exgrpo.jobs.actions.studies.comparison import compare, mean_text, reading
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, Study, wanted_keys
from exgrpo.jobs.actions.studies.running import PendingRun, pending_runs, start
from exgrpo.jobs.actions.studies.study_results import (
    MOST_SEEDS,
    POWER,
    detectable,
    find_runs,
    measured_spread,
    plan_seeds,
    read_results,
    state_of_keys,
)
from exgrpo.jobs.actions.studies.sweeps import find_study
from exgrpo.jobs.cli.following import follow, leave_to_supervisor
from exgrpo.jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    EXIT_FAILURE,
    EXIT_STOPPED,
    AsJson,
    DatabaseUrl,
    RunsRoot,
    command_group,
    print_json,
    print_result,
    print_status,
)
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.specs.train import SpecError
from exgrpo_core.recording.run_status import RunStatus

study_app = command_group("Run the paper's tables. Reports compare them with the paper's numbers.")

StudyName = Annotated[str, typer.Argument(metavar="NAME", help="A study of `exgrpo query studies`.")]
ScaleName = Annotated[
    str | None,
    typer.Option(
        "--scale",
        help="chains (the built-in task), real (a small language model) or paper (its models, on verl). Default: the "
        "first scale of the study.",
    ),
]
NumSeeds = Annotated[
    int | None, typer.Option("--seeds", min=1, help="Number of seeds of each cell. Default: the study's.")
]
CellNames = Annotated[
    list[str] | None,
    typer.Option("--cells", metavar="NAMES", help="Only these cells, separated by commas. Default: all."),
]


@study_app.command("run")
def run(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    name: StudyName,
    scale: ScaleName = None,
    num_seeds: NumSeeds = None,
    cells: CellNames = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Change a field of every new run, as FIELD=VALUE. Repeatable."
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Queue everything and return at once.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Run the missing runs of a study, one after another; Ctrl-C stops, the same command continues."""
    study, keys = _wanted(runs_root, name, scale, num_seeds, cells)
    run_missing(runs_root, database_url, study, keys, settings or [], detach=detach)


def run_missing(
    runs_root: Path,
    database_url: str | None,
    study: Study,
    keys: list[RunKey],
    settings: list[str],
    *,
    detach: bool,
) -> None:
    """Run what has not finished of a study, or queue it; the command ends with what came of it."""
    with open_fresh_index(runs_root, database_url) as database:
        pending = pending_runs(database, study, keys)
    print_status(f"Existing runs: {len(keys) - len(pending)} of {len(keys)}.")
    if detach:
        num_queued = _queue(runs_root, study, pending, settings)
        if num_queued:
            leave_to_supervisor(runs_root, database_url)
        if num_queued < len(pending):
            raise typer.Exit(EXIT_FAILURE)
        return
    failed = []
    for number, item in enumerate(pending, start=1):
        print_status(f"Run {number} of {len(pending)}: {item.key.cell}, seed {item.key.seed}")
        try:
            run_id = start(runs_root, study, item, settings)
        except CommandError as error:
            failed.append(item.key.cell)
            print_status(str(error))
            continue
        state = follow(runs_root, database_url, run_id)
        if state.status is RunStatus.STOPPED:
            print_status(f"Runs left: {len(pending) - number} and this one; the same command continues.")
            raise typer.Exit(EXIT_STOPPED)
        if state.status is not RunStatus.FINISHED:
            failed.append(run_id)
            print_status(f"Run {run_id} {state.status}: {state.reason}")
    shown = f"`exgrpo study report {study.name}` shows them"
    print_result(f"Runs done: {len(pending) - len(failed)}, failed: {len(failed)}; {shown}.")
    if failed:
        raise typer.Exit(EXIT_FAILURE)


def _queue(runs_root: Path, study: Study, pending: list[PendingRun], settings: list[str]) -> int:
    num_queued = 0
    for item in pending:
        try:
            print_result(start(runs_root, study, item, settings))
            num_queued += 1
        except CommandError as error:
            print_status(str(error))
    return num_queued


@study_app.command("plan")
def plan(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    name: StudyName,
    difference: Annotated[
        float, typer.Option("--difference", help="Difference from the baseline that you want to detect.")
    ],
    spread: Annotated[
        float | None,
        typer.Option(
            "--spread", help="Standard deviation of the difference over seeds. Default: measured on the finished runs."
        ),
    ] = None,
    power: Annotated[
        float, typer.Option("--power", min=0.5, max=0.99, help="Probability of detecting the difference.")
    ] = POWER,
    scale: ScaleName = None,
    cells: CellNames = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print how many seeds you need to see a difference from the baseline."""
    study, keys = _wanted(runs_root, name, scale, None, cells)
    if spread is None:
        with open_fresh_index(runs_root, database_url) as database:
            spread = measured_spread(read_results(database, study, keys[0].scale, []))
    if spread is None or not spread > 0 or not abs(difference) > 0:
        raise SpecError(
            "expected numbers above 0; two finished seeds of the baseline and of another cell give the spread too.",
            "--spread",
            "--difference",
        )
    compared = [item for item in dict.fromkeys(key.cell for key in keys) if study.baseline_of(study.cell(item))]
    planned = plan_seeds(difference, spread, max(1, len(compared)), power)
    if as_json:
        print_json(asdict(planned))
        return
    needs = f"more than {MOST_SEEDS}" if planned.num_seeds is None else str(planned.num_seeds)
    least = detectable(study.num_seeds, spread, planned.num_comparisons, power)
    print_result(
        f"A difference of {abs(difference):g}, with a spread of {spread:.3g} over seeds, needs {needs} seeds a cell to "
        f"be found with a chance of {power:.0%} among {planned.num_comparisons} comparisons (Holm); the study's "
        f"{study.num_seeds} find {least:.3g}."
    )


@study_app.command("status")
def status(
    name: StudyName,
    scale: ScaleName = None,
    num_seeds: NumSeeds = None,
    cells: CellNames = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print which runs of a study are finished, running or missing."""
    study, keys = _wanted(runs_root, name, scale, num_seeds, cells)
    with open_fresh_index(runs_root, database_url) as database:
        runs = find_runs(database, study)
    if num_seeds is None:
        names = {key.cell for key in keys}
        more = {key for key in runs if key.scale is keys[0].scale and key.cell in names} - {*keys}
        keys += sorted(more, key=lambda key: key.seed)
    states = state_of_keys(runs, keys)
    if as_json:
        lines = [
            {"cell": key.cell, "seed": key.seed, "state": state, "run_id": runs[key].run_id if key in runs else None}
            for key, state in states
        ]
        print_json({"study": study.name, "scale": keys[0].scale, "runs": lines})
        return
    for cell in dict.fromkeys(key.cell for key in keys):
        seeds_by_label: dict[str, list[str]] = {}
        for key, state in states:
            if key.cell == cell:
                seeds_by_label.setdefault(state, []).append(str(key.seed))
        labels = "; ".join(f"{label}: seed {', '.join(numbers)}" for label, numbers in seeds_by_label.items())
        print_result(f"{cell:<32} {labels}")


@study_app.command("results")
def results(
    name: StudyName,
    scale: ScaleName = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print results of finished runs next to the paper's numbers: means over seeds with 95% intervals."""
    study, study_scale = _study_at(runs_root, name, scale)
    with open_fresh_index(runs_root, database_url) as database:
        measured = read_results(database, study, study_scale, [])
    rows = compare(measured)
    if as_json:
        figures = {
            cell.cell.name: {figure: _interval(value) for figure, value in cell.figures.items()}
            for cell in measured.cells
        }
        lines = [asdict(row) | {"own": _interval(row.own), "difference": _interval(row.difference)} for row in rows]
        print_json({"study": study.name, "scale": study_scale, "figures": figures, "beside_paper": lines})
        return
    for row in rows:
        figure = _figure(row.own, row.difference, row.num_seeds)
        print_result(f"{row.full_row} / {row.column}: paper {row.printed}, own {row.cell} {figure}")
    beside_paper = {row.cell for row in rows}
    main = measured.main_figure or ""
    for cell in measured.cells:
        if main in cell.figures and cell.cell.name not in beside_paper:
            own = cell.figures[main]
            print_result(f"{cell.cell.name}: {main} {_figure(own, measured.difference(cell), len(own.values))}")
    print_result(reading(measured) if main else "No run has finished yet.")


@study_app.command("report")
def report(
    name: StudyName,
    scale: ScaleName = None,
    num_seeds: NumSeeds = None,
    out: Annotated[Path | None, typer.Option("--out", help="File to write. Default: NAME-SCALE.html.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Write a study's page: one HTML file with the paper's numbers next to those of the runs that are done."""
    from exgrpo.jobs.actions.studies.study_report import render_report  # loads Plotly, which no other command needs

    study, study_scale = _study_at(runs_root, name, scale)
    keys = wanted_keys(study, study_scale, study.cells, num_seeds)
    with open_fresh_index(runs_root, database_url) as database:
        results = read_results(database, study, study_scale, keys)
    path = out or Path(f"{name}-{study_scale}.html")
    path.write_text(render_report(results, len(keys)), encoding="utf-8")
    print_result(str(path))


def _wanted(
    runs_root: Path, name: str, scale: str | None, num_seeds: int | None, cells: list[str] | None
) -> tuple[Study, list[RunKey]]:
    study, study_scale = _study_at(runs_root, name, scale)
    names = [name.strip() for names in cells or [] for name in names.split(",")]
    chosen = [study.cell(item) for item in names] or study.cells
    keys = wanted_keys(study, study_scale, chosen, num_seeds)
    if not keys and not study.cells_at(study_scale):
        raise SpecError(f"{name} cannot be run at the scale {study_scale}. {' '.join(study.notes)}", "--scale")
    if not keys:
        names_at_scale = [cell.name for cell in study.cells_at(study_scale)]
        raise SpecError(f"expected some of {', '.join(names_at_scale)} at {study_scale}.", "--cells")
    return study, keys


def _study_at(runs_root: Path, name: str, scale: str | None) -> tuple[Study, Scale]:
    study = find_study(runs_root, name)
    if scale is None:
        return study, study.scales[0]
    if scale not in {*Scale}:
        raise SpecError(f"expected one of {', '.join(Scale)}, got {scale!r}.", "--scale")
    return study, Scale(scale)


def _figure(own: MeanInterval | None, difference: MeanInterval | None, num_seeds: int) -> str:
    compared = f", difference {mean_text(difference, is_difference=True)}" if difference else ""
    return f"{mean_text(own) or '-'}{compared} ({num_seeds} seeds)"


def _interval(interval: MeanInterval | None) -> dict[str, Any] | None:
    """Return an interval for JSON, which has no NaN: `half` of a single seed is null."""
    if interval is None:
        return None
    return {
        "mean": interval.mean,
        "half": None if math.isnan(interval.half) else interval.half,
        "values": interval.values,
    }


def sweep(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="YAML file with `base` and `over`, which lists values for each field."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be started, and start nothing.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Queue everything and return at once.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run all combinations of the listed values. A second call runs what is still missing."""
    study = sweeps.sweep_of_file(file)
    keys = wanted_keys(study, Scale.OWN, study.cells, None)
    sweeps.refuse_unrunnable(runs_root, study)
    sweeps.refuse_changed(runs_root, study)
    if not dry_run:
        sweeps.keep(runs_root, study)
        run_missing(runs_root, database_url, study, keys, [], detach=detach)
        return
    with open_fresh_index(runs_root, database_url) as database:
        states = state_of_keys(find_runs(database, study), keys)
    if as_json:
        print_json([{"cell": key.cell, "seed": key.seed, "state": state} for key, state in states])
        return
    for note in study.notes:
        print_result(note)
    for key, state in states:
        print_result(f"{key.cell:<40} seed {key.seed:<6} {state}")
