"""The commands that score models on benchmarks and judge chains of thought."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exgrpo.db.queries.benchmarks import list_scores
from exgrpo.jobs.actions.evaluations import plan_evaluation, resolve_evaluation
from exgrpo.jobs.actions.queueing import queue_checked, queue_job
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
from exgrpo.jobs.evaluation.analysis.report import summarize_judge
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.lookup import find_run_id
from exgrpo.jobs.runs.recording.event_reader import iterate_events
from exgrpo.jobs.runs.report import interval_words
from exgrpo.jobs.specs.base import checked
from exgrpo.jobs.specs.judging import JudgeSpec
from exgrpo.jobs.specs.settings import apply_settings

if TYPE_CHECKING:
    from exgrpo.jobs.specs.evaluation import EvalSpec


def evaluate(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its signature
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN@STEP",
            help="Checkpoint (also RUN@last, RUN@best), model folder, GGUF file, hub name or pip:PACKAGE.",
        ),
    ],
    benchmarks: Annotated[
        list[str],
        typer.Option(
            "--benchmark",
            "-b",
            metavar="NAME",
            help="A name from `exgrpo query benchmarks`, or NAME=FILE for your own data. Repeatable.",
        ),
    ],
    num_questions: Annotated[
        int | None, typer.Option(help="Use only the first questions of each benchmark.", min=1)
    ] = None,
    num_samples: Annotated[
        int | None, typer.Option(help="n of Avg@n: responses per question. Default: the benchmark's.", min=1)
    ] = None,
    settings: Settings = None,
    detach: Detach = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on benchmarks. Ctrl-C stops the scoring and `exgrpo resume` continues it."""
    spec = _make_spec(runs_root, target, benchmarks, (num_questions, num_samples), settings or [])
    checked = resolve_evaluation(spec, runs_root)
    run_id = queue_checked(runs_root, checked)
    for notice in checked.notices:
        print_status(notice)
    state = follow_unless(detach, runs_root, database_url, run_id, as_json)
    _print_scores(runs_root, database_url, run_id, as_json)
    exit_as(state)


def _make_spec(
    runs_root: Path, target: str, benchmarks: list[str], limits: tuple[int | None, int | None], settings: list[str]
) -> "EvalSpec":
    given = (text.partition("=") for text in benchmarks)
    choices = [
        {"name": name, "source": source or None, "num_questions": limits[0], "samples_per_question": limits[1]}
        for name, _, source in given
    ]
    spec = apply_settings(plan_evaluation(runs_root, target, {"benchmarks": choices}, "eval"), settings)
    changed = {setting.partition("=")[0].strip() for setting in settings} & {"template", "temperature"}
    without = tuple(choice.model_copy(update=dict.fromkeys(changed)) for choice in spec.benchmarks)
    return spec.model_copy(update={"benchmarks": without})


def _print_scores(runs_root: Path, database_url: str | None, run_id: str, as_json: bool) -> None:
    with open_fresh_index(runs_root, database_url) as database:
        rows = list_scores(database, run_id=run_id)
    events = iterate_events(RunDirectory.open(runs_root, run_id), "benchmark")
    means = {event["benchmark"]: event.get("reward_parts") or {} for event in events}
    if as_json:
        scores = [asdict(row) for row in rows]
        print_json({"run_id": run_id, "scores": scores, "reward_parts": means})
        return
    for row in rows:
        print_result(f"{row.title:<14} {row.metric:<7} {row.scheme:<9} {row.score:.4f}{interval_words(asdict(row), 4)}")
    for benchmark, parts in means.items():
        for part, mean in parts.items():
            print_result(f"{benchmark:<14} reward {part} {mean:.4f}")


def judge(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Training run whose correct responses are judged.")
    ] = None,
    labelled: Annotated[
        Path | None, typer.Option("--labelled", help="JSON Lines file with human labels, to calibrate the judge.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="Address of an OpenAI-compatible server, up to /v1. Default: the oracle of the task judges."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name at the server. Default: Qwen/Qwen3-32B.")] = None,
    votes: Annotated[int, typer.Option(min=1, help="Number of verdicts per response.")] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Judge this many responses, spread evenly over the run.")
    ] = None,
    settings: Settings = None,
    detach: Detach = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Judge chains of thought. Ctrl-C stops the judge and `exgrpo resume` continues it."""
    source: dict[str, Any] = {
        "run_id": None if run is None else find_run_id(runs_root, run),
        "file": labelled and str(labelled.resolve()),
    }
    content: dict[str, Any] = {"judged": source | {"limit": limit}, "num_votes": votes, "judge": "oracle"}
    if server is not None:
        content |= {"judge": "server", "server": {"address": server} | ({"model": model} if model else {})}
    job_id = queue_job(runs_root, apply_settings(checked(JudgeSpec, content, "exgrpo judge"), settings or []))
    state = follow_unless(detach, runs_root, database_url, job_id, as_json)
    with open_fresh_index(runs_root, database_url) as database:
        summary = summarize_judge(database, job_id)
    _print_judgement(summary, as_json)
    exit_as(state)


def _print_judgement(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    print_result(f"{summary['run_id']}: {summary['num_valid']} valid, {summary['num_invalid']} invalid, "
        f"{summary['num_unjudged']} unjudged of {summary['num_responses']} responses "
        f"({summary['num_votes']} votes, {summary['num_tokens']} tokens)")  # fmt: skip
    for name in ("reasons", "issues"):
        if summary[name]:
            print_result(f"{name}: " + ", ".join(f"{key} {count}" for key, count in summary[name].items()))
    calibration = summary["calibration"]
    if calibration is not None:
        for name in ("sensitivity", "specificity", "unjudged", "flips"):
            rate = getattr(calibration, name)
            print_result(f"{name:<12} {rate.value:.3f}  [{rate.low:.3f}, {rate.high:.3f}]  of {rate.num_items}")
        print_result(f"kappa        {calibration.kappa:.3f}")
