"""The command that asks models a prompt."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from exgrpo_core.config import MAX_SEED
from exgrpo_core.errors import InputError
from jobs.cli.options import DEFAULT_RUNS_ROOT, AsJson, RunsRoot, counted, print_result, print_status

if TYPE_CHECKING:
    from typing import Any


def chat(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN@STEP ...",
            help="Checkpoint; RUN@last and RUN@start too, or a folder, GGUF file, hub name or pip:PACKAGE.",
        ),
    ],
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="The question; else standard input.")] = None,
    num_samples: Annotated[int, typer.Option("-n", "--num-samples", min=1, max=64, help="Answers of each.")] = 1,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 is greedy; the run's if not given.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer; the run's if not given.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of sampling.")] = 0,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    as_json: AsJson = False,
) -> None:
    """Ask checkpoints or other models a prompt, in the prompt template of their run."""
    from jobs.playground.answering import ChatRequest, answer
    from jobs.playground.targets import find_model

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


def _print(target: str, record: "dict[str, Any]") -> None:
    if "prompt" in record:
        print_status(f"{target} gets {counted(record['num_prompt_tokens'], 'token', 'tokens')}:\n{record['prompt']}")
        return
    entropies = record["entropies"]
    cut = ", cut at the length limit" if record["is_truncated"] else ""
    mean = sum(entropies) / len(entropies)
    num_tokens = counted(len(entropies), "token", "tokens")
    print_result(f"{target}, answer {record['sample']}: {num_tokens}, mean entropy {mean:.3g} nats{cut}")
    print_result(record["text"])
