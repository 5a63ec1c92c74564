"""The commands that ask a model: a look before a run, and a chat with checkpoints."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exgrpo.jobs.actions.preflight.local_sources import resolve_source
from exgrpo.jobs.actions.preflight.resolution import resolve
from exgrpo.jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    RunsRoot,
    Settings,
    counted,
    print_json,
    print_result,
    print_status,
)
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset, load_spec, merge_settings, parse_spec
from exgrpo_core.config import MAX_SEED
from exgrpo_core.errors import InputError

if TYPE_CHECKING:
    from exgrpo.jobs.training.probe_report import ProbeReport

MAX_RESPONSE_TOKENS = 256
"""Longest response where neither preset nor file says."""
MAX_SHOWN = 500


def probe(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    model: Annotated[
        str | None,
        typer.Argument(
            help="Model folder, GGUF file, hub name, pip:PACKAGE or RUN@STEP. Default: the model of the specification."
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="File or data set of questions with answers, or word_problems.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Preset with the settings of the run.")] = None,
    spec: Annotated[Path | None, typer.Option(help="YAML or JSON file with the settings of the run.")] = None,
    settings: Settings = None,
    num_questions: Annotated[int, typer.Option(help="Number of questions. The first ones are used.", min=1)] = 4,
    num_samples: Annotated[int, typer.Option(help="Responses per question.", min=1)] = 4,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    as_json: AsJson = False,
) -> None:
    """Sample a few responses before a run. Prints Pass@1, format, truncation and entropy, and what to change."""
    chosen = apply_settings(_read_spec(preset, spec, model, data), settings or [])
    preflight = resolve(chosen, runs_root)
    preflight.raise_refusals()
    from exgrpo.jobs.training.probe import probe as sample

    report = sample(preflight.spec, num_questions, num_samples)
    print_json(report.to_json()) if as_json else print_result(describe(report, preflight.spec.data.source))


def describe(report: "ProbeReport", data: str) -> str:
    """Return the report as text for a terminal; `data` names where the questions are from."""
    lines = [f"The first prompt, from {data}, as the model gets it:", report.prompt]
    for answer in report.answers:
        text = answer.text if len(answer.text) <= MAX_SHOWN else f"{answer.text[:MAX_SHOWN]} ..."
        lines += ["", f"{answer.verdict} (gold answer {answer.gold_answer}):", text]
    return "\n".join([*lines, "", report.summary(), *(f"- {sentence}" for sentence in report.advice())])


def _read_spec(preset: str | None, path: Path | None, model: str | None, data: str | None) -> TrainSpec:
    if preset is not None and path is not None:
        raise SpecError("expected one of them; a file may name its preset in `extends`.", "--preset", "--spec")
    one = {"batch_size": 1, "mini_batch_size": 1, "experience_ratio": 0.0}
    content: dict[str, Any] = {
        "algorithm": {"max_response_tokens": MAX_RESPONSE_TOKENS, **one},
        "data": {"num_questions": None, "num_held_out": 0},  # a file of one row is enough
    }
    if preset is not None:
        content = load_preset(preset).model_dump(mode="json")
    elif path is not None:
        content = load_spec(path).model_dump(mode="json")
    if data is not None:
        resolve_source("data.source", data)  # before a missing file lacks a model that reads it
    sources = {"model": model, "data": data}
    changes = {section: {"source": source} for section, source in sources.items() if source is not None}
    return parse_spec(merge_settings(content, changes), "probe")


def chat(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN@STEP ...",
            help="Checkpoint (also RUN@last, RUN@start), model folder, GGUF file, hub name or pip:PACKAGE.",
        ),
    ],
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="The question. Default: standard input.")] = None,
    num_samples: Annotated[
        int, typer.Option("-n", "--num-samples", min=1, max=64, help="Responses of each model.")
    ] = 1,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Sampling temperature; 0 is greedy. Default: the run's.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest response in tokens. Default: the run's.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of sampling.")] = 0,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    as_json: AsJson = False,
) -> None:
    """Send a prompt to one or more models. Each gets the prompt template of its run."""
    from exgrpo.jobs.actions.answering import ChatRequest, answer, find_model

    prompt = _read_prompt() if prompt is None else prompt
    models = [find_model(runs_root, target) for target in targets]
    request = ChatRequest(prompt, num_samples, temperature, max_tokens, seed)
    for target, model in zip(targets, models, strict=True):
        for record in answer(model, request):
            if as_json:
                typer.echo(json.dumps({"model": target, **record}, ensure_ascii=False))
            else:
                _print(target, record)


def _read_prompt() -> str:
    if sys.stdin.isatty():
        print_status("Write the prompt; Ctrl-D on an empty line ends it.")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise InputError("prompt: expected text in UTF-8.") from None


def _print(target: str, record: dict[str, Any]) -> None:
    if "prompt" in record:
        print_status(f"{target} gets {counted(record['num_prompt_tokens'], 'token', 'tokens')}:\n{record['prompt']}")
        return
    cut = ", cut at the length limit" if record["is_truncated"] else ""
    num_tokens = counted(record["num_tokens"], "token", "tokens")
    mean = record["mean_entropy"]
    print_result(f"{target}, answer {record['sample']}: {num_tokens}, mean entropy {mean:.3g} nats{cut}")
    print_result(record["text"])
