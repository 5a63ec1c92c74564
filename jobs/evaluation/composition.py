"""The composition root of evaluations: a specification becomes a generator."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs.evaluation.generation import AnswerGenerator
from jobs.evaluation.model_folder import model_source
from jobs.evaluation.questions import LoadedBenchmark
from jobs.runs.checkpoints import ADAPTER_CONFIG
from jobs.runs.control import TrainingError
from jobs.runs.directory import RunDirectory
from jobs.specs.evaluation import EvalSpec


@contextmanager
def open_generator(
    spec: EvalSpec, run: RunDirectory, benchmarks: Sequence[LoadedBenchmark]
) -> Iterator[AnswerGenerator]:
    """Yield the generator of a specification and close it afterwards.

    Raises:
        TrainingError: Model or server cannot be used.
        ModelSourceError: A GGUF file cannot be downloaded or converted.
    """
    generator = _make_generator(spec, run, benchmarks)
    try:
        yield generator
    finally:
        generator.close()


def _make_generator(spec: EvalSpec, run: RunDirectory, benchmarks: Sequence[LoadedBenchmark]) -> AnswerGenerator:
    if spec.server is not None:
        from jobs.evaluation.server_generator import ServerGenerator

        return ServerGenerator(spec.server, spec, max(benchmark.samples_per_question for benchmark in benchmarks))
    from jobs.pretrained.conversion import prepare_model

    source = prepare_model(model_source(spec, run))
    if spec.generator == "vllm":
        if Path(source, ADAPTER_CONFIG).is_file():
            raise TrainingError(
                "generator: the checkpoint holds low-rank adapters, which vLLM is not given; write the model with "
                "`exgrpo export RUN@STEP FOLDER` and score FOLDER, or choose embedded."
            )
        from jobs.evaluation.vllm_generator import VllmGenerator

        return VllmGenerator(source, spec)
    from jobs.engines.embedded.model import load_policy, resolve_device
    from jobs.evaluation.embedded_generator import EmbeddedGenerator

    policy = load_policy(source, resolve_device(spec.model.device), spec.model.revision)
    return EmbeddedGenerator(policy, spec.max_response_tokens)
