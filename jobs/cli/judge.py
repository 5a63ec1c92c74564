"""The commands that judge chains of thought and analyse the verdicts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db.queries.code_analysis import rule_counts
from jobs.actions.judgements import submit_judge
from jobs.analysis.code_detection import read_texts, tabulate_counts, tabulate_rules
from jobs.analysis.report import analyse_run, summarize_judge
from jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    RunName,
    RunsRoot,
    command_group,
    print_json,
    print_result,
)
from jobs.cli.train import exit_as, follow, leave_to_supervisor
from jobs.runs.lookup import find_judge_id, find_run_id
from jobs.specs.judging import parse_judge_spec
from jobs.specs.settings import apply_settings
from jobs.supervisor.open_index import open_fresh_index

if TYPE_CHECKING:
    from jobs.analysis.code_detection import RuleTable
    from jobs.analysis.report import RunAnalysis

analyse_app = command_group("Analyse recorded chains of thought.")


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


@analyse_app.command("rules")
def rules(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines or plain text.", exists=True)],
    field: Annotated[str, typer.Option(help="Field of each JSON line that holds the text.")] = "solution",
    as_json: AsJson = False,
) -> None:
    """Print how many texts match each of the paper's code-detection rules."""
    table = tabulate_rules(read_texts(file, field))
    print_json(table) if as_json else print_rules(table)


def print_rules(table: "RuleTable") -> None:
    """Print a table of rules, one line a rule."""
    for line in table.rules:
        print_result(
            f"{line.rule_id:<4} {line.num_texts:>6} {line.rate:>7.2%}  {line.kind:<10} {line.cue}; {line.form}"
        )
    print_result(f"any  {table.num_any:>6} {table.any_rate:>7.2%}  of {table.num_texts} texts")
    print_result(
        f"     {table.num_python_blocks:>6} {table.python_block_rate:>7.2%}  hold a Python block by the parser"
    )


@analyse_app.command("run")
def analyse(
    run: RunName,
    judge_run: Annotated[
        str | None, typer.Option("--judge", help="Judge's job whose verdicts count; without it the task's oracle.")
    ] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print entropy and validity with and without code, their AUC, code's spread over the run, and cases."""
    run_id = find_run_id(runs_root, run)
    judge_run_id = find_judge_id(runs_root, judge_run)
    with open_fresh_index(runs_root, database_url) as database:
        analysis = analyse_run(database, run_id, judge_run_id)
    print_json(analysis) if as_json else _print_analysis(analysis)


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


def _print_analysis(analysis: "RunAnalysis") -> None:
    print_result(f"{analysis.run_id}, verdicts by {analysis.judge}")
    for code in analysis.code:
        kind = "code" if code.has_code else "no code"
        print_result(f"{code.group:<7} {kind:<8} {code.num_trajectories:>6} correct, entropy "
            f"{code.mean_entropy:.4f}, valid {code.cot_correctness:.3f} of {code.num_judged}")  # fmt: skip
    for corrected in analysis.corrected:
        rate = corrected.rate
        print_result(f"{corrected.group:<7} {'code' if corrected.has_code else 'no code':<8} valid, corrected "
            f"{rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}]")  # fmt: skip
    for line in analysis.validity:
        entropy = f"entropy {line.entropy_valid:.4f} {line.entropy_invalid:.4f} AUC {line.entropy_auc:.3f}"
        perplexity = (
            f"perplexity {line.perplexity_valid:.4f} {line.perplexity_invalid:.4f} AUC {line.perplexity_auc:.3f}"
        )
        counts = f"valid {line.num_valid}, invalid {line.num_invalid}"
        print_result(f"{line.group:<7} {counts}: {entropy}; {perplexity}")
    if analysis.code_shares:
        first, last = analysis.code_shares[0], analysis.code_shares[-1]
        print_result(f"code in rollouts {_share(first.rollouts)} -> {_share(last.rollouts)}, in the buffer "
            f"{_share(first.buffer)} -> {_share(last.buffer)}, in replays -> {_share(last.replays)}")  # fmt: skip
    for case in analysis.cases:
        print_result(f"\nQuestion: {case.question}\nTruth: {case.truth}")
        for name, response in (("low", case.low), ("high", case.high)):
            print_result(
                f"-- {name} entropy {response.entropy:.4f}, valid: {response.is_valid}, code: {response.has_code}"
            )
            print_result(response.text)


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


@analyse_app.command("code")
def code(
    run: RunName,
    only_correct: Annotated[bool, typer.Option("--correct", help="Count correct answers only.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print how many trajectories of a run match each of the paper's code-detection rules."""
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        table = tabulate_counts(rule_counts(database, run_id), only_correct=only_correct)
    print_json(table) if as_json else print_rules(table)
