"""The command that judges chains of thought."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.actions.judgements import submit_judge
from jobs.analysis.report import summarize_judge
from jobs.cli.following import exit_as, follow, leave_to_supervisor
from jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    RunsRoot,
    print_json,
    print_result,
)
from jobs.runs.lookup import find_run_id
from jobs.specs.judging import parse_judge_spec
from jobs.specs.settings import apply_settings
from jobs.supervisor.open_index import open_fresh_index

if TYPE_CHECKING:
    pass


def judge(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Training run; its answer-correct responses are judged.")
    ] = None,
    labelled: Annotated[
        Path | None, typer.Option("--labelled", help="JSON lines with human labels, to calibrate the judge on.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="OpenAI-compatible server, up to /v1; without it the task's oracle judges."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The judge's name at the server; Qwen/Qwen3-32B if none.")] = None,
    votes: Annotated[int, typer.Option(min=1, help="Requested verdicts of each response.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge this many, drawn evenly.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a field: key=value.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Judge chains of thought; Ctrl-C stops the judge, `exgrpo resume` continues it without repeating requests."""
    source: dict[str, Any] = {
        "run_id": None if run is None else find_run_id(runs_root, run),
        "file": labelled and str(labelled.resolve()),
    }
    content: dict[str, Any] = {"judged": source | {"limit": limit}, "num_votes": votes, "judge": "oracle"}
    if server is not None:
        content |= {"judge": "server", "server": {"address": server} | ({"model": model} if model else {})}
    job_id = submit_judge(runs_root, apply_settings(parse_judge_spec(content, "exgrpo judge"), settings or []))
    if detach:
        leave_to_supervisor(runs_root, database_url)
        print_json({"run_id": job_id}) if as_json else print_result(job_id)
        return
    state = follow(runs_root, database_url, job_id)
    _print_judgement(_summarize(runs_root, database_url, job_id), as_json)
    exit_as(state)


def _summarize(runs_root: Path, database_url: str | None, job_id: str) -> dict[str, Any]:
    with open_fresh_index(runs_root, database_url) as database:
        return summarize_judge(database, job_id)


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
