"""The command that scores a checkpoint or any other model on benchmarks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from db.queries.benchmarks import list_scores
from db.rows.score_intervals import half_interval_95
from jobs.actions.evaluations import plan_evaluation, submit_evaluation
from jobs.cli.options import DEFAULT_RUNS_ROOT, AsJson, DatabaseUrl, RunsRoot, print_json, print_result, print_status
from jobs.cli.train import exit_as, follow, leave_to_supervisor
from jobs.evaluation.protocols import load_protocols, protocol_of
from jobs.evaluation.user_benchmarks import benchmarks_folder, load_user_benchmarks
from jobs.recording.event_reader import iterate_events
from jobs.runs.lookup import open_run
from jobs.specs.settings import apply_settings
from jobs.supervisor.open_index import open_fresh_index

if TYPE_CHECKING:
    from jobs.specs.evaluation import EvalSpec


def evaluate(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its signature
    target: Annotated[
        str, typer.Argument(metavar="RUN@STEP", help="Checkpoint (RUN@last, RUN@best too), folder or hub name.")
    ],
    benchmarks: Annotated[
        list[str],
        typer.Option(
            "--benchmark", "-b", help="One of the paper's or of `exgrpo benchmarks`, or NAME=FILE for your own data."
        ),
    ],
    num_questions: Annotated[int | None, typer.Option(help="Only the first questions of each.", min=1)] = None,
    num_samples: Annotated[int | None, typer.Option(help="n of Avg@n; the protocol's if not given.", min=1)] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Another field: key=value.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on benchmarks; Ctrl-C stops it, `exgrpo resume` continues it."""
    spec = _make_spec(runs_root, target, benchmarks, (num_questions, num_samples), settings or [])
    run_id = submit_evaluation(runs_root, spec)
    if detach:
        leave_to_supervisor(runs_root, database_url)
        print_json({"run_id": run_id}) if as_json else print_result(run_id)
        return
    state = follow(runs_root, database_url, run_id)
    _print_scores(runs_root, database_url, run_id, as_json)
    exit_as(state)


def benchmarks(runs_root: RunsRoot = DEFAULT_RUNS_ROOT, as_json: AsJson = False) -> None:
    """List the benchmarks that `eval` knows: the paper's, and your own in the workbench's folder."""
    user_benchmarks = load_user_benchmarks(runs_root)
    declared = user_benchmarks.choices
    if as_json:
        fields = {name: choice.model_dump(exclude_unset=True) for name, choice in declared.items()}
        print_json({"paper": list(load_protocols()), "own": fields, "left_out": user_benchmarks.faults})
        return
    for protocol in (*load_protocols().values(), *map(protocol_of, declared.values())):
        source = declared[protocol.name].source if protocol.name in declared else protocol.hub and protocol.hub.name
        print_result(f"{protocol.name:<16} {protocol.title:<16} n = {protocol.samples_per_question:<3} {source}")
    for fault in user_benchmarks.faults:
        print_status(f"Left out: {fault}")
    print_status(f"Your own: data files and YAML files in {benchmarks_folder(runs_root)}.")


def _make_spec(
    runs_root: Path, target: str, benchmarks: list[str], limits: tuple[int | None, int | None], settings: list[str]
) -> "EvalSpec":
    choices = []
    for text in benchmarks:
        name, _, source = text.partition("=")
        fields = {"name": name, "source": source or None, "num_questions": limits[0], "samples_per_question": limits[1]}
        choices.append(fields)
    spec = apply_settings(plan_evaluation(runs_root, target, {"benchmarks": choices}, "eval"), settings)
    changed = {setting.partition("=")[0].strip() for setting in settings} & {"template", "temperature"}
    without = tuple(choice.model_copy(update=dict.fromkeys(changed)) for choice in spec.benchmarks)
    return spec.model_copy(update={"benchmarks": without})


def _print_scores(runs_root: Path, database_url: str | None, run_id: str, as_json: bool) -> None:
    import dataclasses

    with open_fresh_index(runs_root, database_url) as database:
        rows = list_scores(database, run_id=run_id)
    events = iterate_events(open_run(runs_root, run_id), "benchmark")
    means = {event["benchmark"]: event.get("reward_parts") or {} for event in events}
    if as_json:
        scores = [dataclasses.asdict(row) for row in rows]
        print_json({"run_id": run_id, "scores": scores, "reward_parts": means})
        return
    for row in rows:
        print_result(
            f"{row.title:<14} {row.metric:<7} {row.scheme:<9} "
            f"{row.score:.4f} ± {half_interval_95(row.standard_error):.4f}  ({row.num_questions} questions)"
        )
    for benchmark, parts in means.items():
        for part, mean in parts.items():
            print_result(f"{benchmark:<14} reward {part} {mean:.4f}")
