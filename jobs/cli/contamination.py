"""The command that looks for benchmark questions in what a model was trained on."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from jobs.actions.evaluations import plan_evaluation
from jobs.cli.options import DEFAULT_RUNS_ROOT, AsJson, RunsRoot, print_json, print_result, print_status
from jobs.contamination.overlap import overlap_shares
from jobs.contamination.report import LARGE_OVERLAP, ContaminationReport, write_report
from jobs.evaluation.model_folder import find_shards
from jobs.evaluation.protocols import protocol_of
from jobs.evaluation.questions import load_benchmark
from jobs.specs.mistakes import SpecError
from jobs.training.dataset import DataSource, read_rows


def contamination(
    target: Annotated[str, typer.Argument(metavar="RUN@STEP", help="Checkpoint, folder or hub name.")],
    benchmarks: Annotated[
        list[str], typer.Option("--benchmark", "-b", help="As of `exgrpo eval`; several, one after another.")
    ],
    data: Annotated[str | None, typer.Option(help="Training data in verl's schema, to compare with.")] = None,
    num_questions: Annotated[int | None, typer.Option(help="Only the first questions of each.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of the other numbers.", min=0)] = 0,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    as_json: AsJson = False,
) -> None:
    """Look for signs that a model has seen benchmark questions; the page Benchmarks keeps the reports."""
    chosen = [text.partition("=") for text in benchmarks]
    fields = [{"name": name, "source": file or None, "num_questions": num_questions} for name, _, file in chosen]
    spec = plan_evaluation(runs_root, target, {"benchmarks": fields}, "contamination")
    if find_shards(Path(spec.model.source)) is not None:
        raise SpecError(f"{target}: write the model of this verl run first, by `exgrpo export-model {target} FOLDER`.")
    loaded = [load_benchmark(choice, protocol_of(choice)) for choice in spec.benchmarks]
    training_texts = [] if data is None else [row.question_text for row in read_rows(DataSource(data)).rows]
    from jobs.contamination.probes import probe_model
    from jobs.engines.embedded.model import load_policy, resolve_device
    from jobs.pretrained.conversion import prepare_model

    policy = load_policy(prepare_model(spec.model.source), resolve_device(spec.model.device), spec.model.revision)
    for benchmark in loaded:
        questions = [question.text for question in benchmark.questions]
        report = ContaminationReport(
            model=target,
            benchmark=benchmark.protocol.name,
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            num_questions=len(questions),
            training_data=data,
            num_overlapping=sum(share >= LARGE_OVERLAP for share in overlap_shares(questions, training_texts)),
            probe=probe_model(policy, questions, seed),
        )
        path = write_report(runs_root, report)
        if as_json:
            print_json({"report": str(path), "signs": report.signs()})
            continue
        for sign in report.signs() or [_without_signs(report)]:
            print_status(f"{report.benchmark}: {sign}")
        print_result(str(path))


def _without_signs(report: ContaminationReport) -> str:
    if not report.was_tested:
        return "Nothing to compare: no question has a number to change, and there are no training data (--data)."
    num_tested = report.num_questions if report.training_data is not None else report.probe.num_compared
    return f"No sign of contamination in {num_tested:,} questions."
