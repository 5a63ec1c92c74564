"""Evaluations as users ask for them: which model a target means, and what is checked before one is queued."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exgrpo.jobs.actions.preflight.local_sources import look_at_benchmarks, resolve_source, with_absolute_benchmarks
from exgrpo.jobs.actions.preflight.looks import (
    ModelLook,
    check_model_files,
    lack_of_chat_template,
    look_at_model,
    read_chat_template,
    read_tokenizer,
)
from exgrpo.jobs.actions.preflight.resolution import Checked, check_awaited_job
from exgrpo.jobs.evaluation.benchmark_questions import LoadedBenchmark
from exgrpo.jobs.evaluation.model_folder import find_shards
from exgrpo.jobs.evaluation.protocols import choose_benchmark, graded_as, load_user_benchmarks, protocol_of
from exgrpo.jobs.machine.engine_environments import engine_python
from exgrpo.jobs.machine.model_server import AddressRefusedError, key_for
from exgrpo.jobs.runs.checkpoints import NEWEST, list_steps
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.lookup import find_checkpoint, find_run_id
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.runs.recording.event_reader import best_checkpoint
from exgrpo.jobs.runs.state import refuse_code
from exgrpo.jobs.specs.any_job import loop_name
from exgrpo.jobs.specs.base import ANSWER_ALONE, DeclaredKind, checked, code_parts
from exgrpo.jobs.specs.evaluation import API_KEY_VARIABLE, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.train import CHAINS_SOURCE, SpecError, TrainSpec
from exgrpo.jobs.training.pretrained.model_shapes import check_split
from exgrpo.jobs.training.pretrained.sources import is_converted
from exgrpo.jobs.training.templates import TemplateName, render_prompt
from exgrpo_core.errors import InputError

_SHARED = frozenset({"template", "temperature"})
"""Fields of an evaluation that a benchmark's declaration gives too; one that is asked for counts for all."""
BEST = "best"
_HUB_SECONDS = 5.0


def resolve_target(runs_root: Path, target: str) -> EvalModelSpec:
    """Return the model that `RUN@STEP`, `RUN@last`, `RUN@best`, a model's folder or a hub name means.

    `best` is the checkpoint of the highest held-out score, of equal ones the first.

    Raises:
        CommandError: There is no such run or checkpoint, it is damaged, or none has a held-out score.
        SpecError: A folder does not exist.
    """
    run_text, _, step_text = target.rpartition("@")
    is_best = bool(run_text) and step_text == BEST and not Path(target).exists()
    checkpoint = find_checkpoint(runs_root, _best_step(runs_root, run_text) if is_best else target)
    if checkpoint is None:
        return EvalModelSpec(source=resolve_source("model", target))
    chosen_as = BEST if is_best else NEWEST if step_text == NEWEST else None
    return EvalModelSpec(
        source=str(checkpoint.policy), run_id=checkpoint.run_id, step=checkpoint.step, chosen_as=chosen_as
    )


def _best_step(runs_root: Path, run_text: str) -> str:
    run = RunDirectory.open(runs_root, find_run_id(runs_root, run_text))
    best, there = best_checkpoint(run), list_steps(run.checkpoints_path)
    if best is None:
        raise CommandError(f"{run_text}@{BEST}: no checkpoint of {run.run_id} has a held-out score; name a step.")
    if best not in there:
        left = ", ".join(map(str, there)) or "none"
        raise CommandError(
            f"{run_text}@{BEST}: the checkpoint of the best held-out score, of step {best}, is gone; there are: {left}."
        )
    return f"{run.run_id}@{best}"


@needs(Role.VIEWER)
def asked_and_graded(runs_root: Path, target: str) -> tuple[str, DeclaredKind]:
    """Return the template in which `target` (as in `resolve_target`) is asked and how own data are graded, by default.

    Raises:
        CommandError: There is no such run or checkpoint, or it is damaged.
    """
    model = resolve_target(runs_root, target) if target else None
    if model is None or model.run_id is None:
        return TemplateName.PAPER.value, "auto"
    run = RunDirectory.open(runs_root, model.run_id).spec()
    return _template_of(run, model.source), run.data.answer_kind


@needs(Role.OPERATOR)
def plan_evaluation(runs_root: Path, target: str, content: Mapping[str, object], origin: str) -> EvalSpec:
    """Return the evaluation of `target` (as in `resolve_target`) with its other fields from `content`.

    A checkpoint is scored by its run's template, longest response, reward parts and, on the user's own data, kind of
    answer unless `content` says otherwise. A benchmark that the user declared has the fields of its declaration, unless
    `content` says otherwise.

    Raises:
        CommandError: There is no such run or checkpoint, or it is damaged.
        SpecError: A field from `origin` or of a declaration is wrong.
    """
    model = resolve_target(runs_root, target)
    fields = {key: value for key, value in content.items() if value is not None}
    benchmarks = fields.get("benchmarks")
    if isinstance(benchmarks, list):
        declared = load_user_benchmarks(runs_root)
        fields["benchmarks"] = [
            {
                key: value
                for key, value in choose_benchmark(choice, declared).items()
                if key not in _SHARED & fields.keys()
            }
            for choice in benchmarks
        ]
    run = None if model.run_id is None else RunDirectory.open(runs_root, model.run_id).spec()
    of_run = (
        {}
        if run is None
        else {
            "template": _template_of(run, model.source),
            "max_response_tokens": run.algorithm.max_response_tokens,
            "reward_parts": [] if run.data.rewards == ANSWER_ALONE else list(run.data.rewards),
        }
    )
    spec = checked(EvalSpec, {**of_run, **fields, "model": model.model_dump()}, origin)
    try:
        code_parts(spec.reward_parts)
    except InputError as error:
        raise CommandError(f"reward_parts: {error}") from None
    kind: DeclaredKind = "auto" if run is None else run.data.answer_kind
    return spec.model_copy(update={"benchmarks": tuple(graded_as(choice, kind) for choice in spec.benchmarks)})


def _template_of(run: TrainSpec, policy: str) -> str:
    has_chat_template = run.data.source != CHAINS_SOURCE and read_chat_template(_tokenizer_source(policy)) is not None
    return TemplateName(run.data.template).resolved(has_chat_template).value


def _tokenizer_source(policy: str) -> str:
    """Return where the tokenizer of a model is: next to verl's shards, or with the model."""
    shards = find_shards(Path(policy)) if Path(policy).is_dir() else None
    return policy if shards is None else str(shards / "huggingface")


def plan_evaluation_after(run: RunDirectory, content: Mapping[str, object], origin: str) -> EvalSpec:
    """Return the evaluation of a training run's last checkpoint, which starts once the run has finished.

    Raises:
        SpecError: A field from `origin` is wrong.
    """
    last_step = run.spec().num_steps
    model = {"source": f"{run.run_id}@{last_step}", "run_id": run.run_id, "step": last_step}
    return checked(EvalSpec, {**content, "model": model, "waits_for": run.run_id}, origin)


@dataclass(frozen=True, slots=True)
class EvaluationLook:
    """An evaluation with what is known of its model and the benchmarks in local files: all that its checks read."""

    spec: EvalSpec
    model: ModelLook | None
    """None of one that a server holds or a run is still to train."""
    benchmarks: Sequence[LoadedBenchmark]


@needs(Role.OPERATOR)
def resolve_evaluation(spec: EvalSpec, runs_root: Path) -> Checked[EvalSpec]:
    """Return the evaluation with local files by path and every reason against it, without writing anything."""
    checked, source = Checked(spec, spec), spec.model.source
    with checked.collecting():
        refuse_code(runs_root, spec.model_dump())
        if spec.waits_for is not None:
            check_awaited_job(runs_root, spec.waits_for)
        elif spec.server is None and (checkpoint := find_checkpoint(runs_root, source)):
            source = str(checkpoint.policy)
    checked.spec = spec.model_copy(update={"model": spec.model.model_copy(update={"source": source})})
    benchmarks: list[LoadedBenchmark] = []
    with checked.collecting():
        for choice in spec.benchmarks:
            protocol_of(choice)
        checked.spec = with_absolute_benchmarks(checked.spec)
        benchmarks = look_at_benchmarks(checked.spec.benchmarks)
        checked.notices += [notice for loaded in benchmarks for notice in loaded.notices]
    is_here = spec.server is None and spec.waits_for is None
    model = look_at_model(_tokenizer_source(source), spec.model.revision) if is_here else None
    for check in EVALUATION_CHECKS:
        with checked.collecting():
            check(EvaluationLook(checked.spec, model, benchmarks))
    return checked


def _check_key(look: EvaluationLook) -> None:
    if look.spec.server is not None:
        refuse_key(look.spec.server.address, API_KEY_VARIABLE)


def refuse_key(address: str, variable: str) -> None:
    """Refuse a server that may not get the API key of `variable`, if this process has it.

    Raises:
        CommandError: It may not; see `key_for`.
    """
    try:
        key_for(address, variable)
    except AddressRefusedError as error:
        raise CommandError(str(error)) from None


def _check_names(look: EvaluationLook) -> None:
    if look.model is not None:
        refuse_unknown("model", look.spec.model.source, look.spec.model.revision)
    for choice in look.spec.benchmarks:
        if choice.source is not None:
            refuse_unknown(f"benchmarks.{choice.name}.source", choice.source, kind="dataset")


def _check_model(look: EvaluationLook) -> None:
    if look.model is not None:
        check_model_files(look.model)
        if look.model.tokenizer is not None:
            read_tokenizer(look.model.tokenizer)


def _check_generator(look: EvaluationLook) -> None:
    if look.spec.waits_for is None:
        engine_python(loop_name(look.spec))


def _check_chat_templates(look: EvaluationLook) -> None:
    spec = look.spec
    asking = [choice for choice in spec.benchmarks if (choice.template or spec.template) == "chat"]
    if asking and look.model is not None and look.model.lacks_chat_template:
        field = f"benchmarks.{asking[0].name}.template" if asking[0].template else "template"
        raise lack_of_chat_template(field)


def _prompts_at_hand(look: EvaluationLook) -> list[str]:
    """Return the prompts of all benchmarks in local files."""
    prompts = []
    for benchmark in look.benchmarks:
        template = TemplateName(benchmark.template(look.spec))
        # The model's own chat template adds some tokens to its messages.
        is_chat = template is TemplateName.CHAT
        prompts += [
            "".join(message["content"] for message in question.messages)
            if is_chat
            else render_prompt(template, question.messages)
            for question in benchmark.questions
        ]
    return prompts


def check_fit(look: EvaluationLook) -> None:
    """Refuse an evaluation whose longest prompt and answer are longer than the model's context.

    A model that is not on this machine refuses nothing here.

    Raises:
        SpecError: They do not fit, and the sentence says which length does; or vLLM cannot share the model.
        UnreadableFileError: The model's tokenizer is damaged.
    """
    spec, model, prompts = look.spec, look.model, _prompts_at_hand(look)
    shape, path = (None, None) if model is None else (model.shape, model.tokenizer)
    check_split(spec.model.source, shape, spec.num_gpus, "num_gpus")

    def limit_after(num_tokens: int) -> int:
        if shape is None:
            return spec.context_tokens or sys.maxsize
        limit = shape.limit_after(num_tokens) if spec.generator == "embedded" else shape.context
        return min(limit, spec.context_tokens or limit)

    if limit_after(1) >= spec.max_response_tokens + max(map(_most_tokens, prompts), default=1):
        return
    encoded = [] if path is None else read_tokenizer(path).encode_batch(list(prompts))
    lengths = [len(prompt.ids) for prompt in encoded] or [1]
    tokens_left, longest = min((limit_after(length) - length, length) for length in lengths)
    if tokens_left >= spec.max_response_tokens:
        return
    advice = (
        f"set max_response_tokens to {tokens_left:,} or less"
        if tokens_left > 0
        else "choose a model with a longer context"
    )
    raise SpecError(
        f"the longest prompt ({longest:,} tokens) and an answer of {spec.max_response_tokens:,} "
        f"do not fit into the context of {limit_after(longest):,}; {advice}.",
        "max_response_tokens",
    )


def _most_tokens(prompt: str) -> int:
    """Return more tokens than any tokenizer makes of a text: a token is a byte or more."""
    return len(prompt.encode(errors="surrogatepass")) + 1


EVALUATION_CHECKS: tuple[Callable[[EvaluationLook], None], ...] = (
    _check_key,
    _check_names,
    _check_model,
    _check_generator,
    _check_chat_templates,
    check_fit,
)
"""Each raises why an evaluation cannot be queued."""


def refuse_unknown(
    field: str, source: str, revision: str | None = None, kind: Literal["model", "dataset"] = "model"
) -> None:
    """Refuse a source that is no file, no hub name, or one that the hub does not know.

    If the hub does not answer, or must not be used (`HF_HUB_OFFLINE`), nothing is refused: the cache may have it.

    Raises:
        SpecError: It is none of these; the sentence names the field.
    """
    if os.path.exists(source) or is_converted(source):
        return
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    package = ", pip:PACKAGE" if kind == "model" else ""
    expected = f"expected an existing file or folder{package}, or the name of a {kind} of the Hugging Face hub"
    try:
        HfApi().repo_info(source, repo_type=kind, revision=revision, timeout=_HUB_SECONDS)
    except hub.HFValidationError:
        raise SpecError(f"{expected}, got {source!r}.", field) from None
    except hub.RevisionNotFoundError:
        raise SpecError(f"{expected}; {source} has no revision {revision!r}.", field) from None
    except hub.GatedRepoError:
        raise SpecError(f"{source} is gated; request access on the hub, and log in.", field) from None
    except hub.RepositoryNotFoundError:
        raise SpecError(f"{expected}; the hub has no {source!r}, or it is private.", field) from None
    except (OSError, httpx.HTTPError, hub.HfHubHTTPError):
        return
