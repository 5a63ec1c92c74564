"""How many GPU hours a training run or a scoring of all benchmarks would take on the paper's GPUs; coarse."""

from jobs.evaluation.protocols import load_protocols
from jobs.preflight.disk_estimate import ASSUMED_LENGTH_SHARE
from jobs.preflight.model_shapes import model_shape
from jobs.specs.evaluation import EvalSpec
from jobs.specs.train import TrainSpec

TRAINING_FLOPS = 12
"""Floating-point operations a parameter and token: update with gradient checkpointing, and three scorings."""
IMITATION_FLOPS = 8
"""The same for supervised fine-tuning: forward twice, backward once."""
FLOPS_A_SECOND = 4e14
"""What an H100 does of them in training: 40% of its peak in bfloat16."""
PARAMETER_TOKENS_A_SECOND = 2.8e13
"""Tokens a second that vLLM generates on an H100, times the model's parameters: 4,000 at 7 billion."""
_SECONDS_AN_HOUR = 3600.0


def estimate_gpu_hours(spec: TrainSpec) -> float | None:
    """Return the H100 hours of a training run, None where the model's size is not known.

    Responses are taken to be a quarter of the longest allowed. The main run of the paper comes to about 200.
    """
    shape = model_shape(spec.model.source, spec.model.revision)
    if shape is None:
        return None
    config = spec.algorithm
    response = config.max_response_tokens * ASSUMED_LENGTH_SHARE
    num_responses = config.batch_size * (1 if spec.sft is not None else config.rollouts_per_question)
    num_tokens = spec.num_steps * num_responses * response
    flops = IMITATION_FLOPS if spec.sft is not None else TRAINING_FLOPS
    seconds = num_tokens * shape.parameters * flops / FLOPS_A_SECOND
    if spec.sft is None:
        seconds += num_tokens * shape.parameters / PARAMETER_TOKENS_A_SECOND
    return seconds / _SECONDS_AN_HOUR


def estimate_step_seconds(spec: TrainSpec) -> float | None:
    """Return the seconds that a step of a verl run takes on its GPUs if they are H100s, None where it is not known."""
    hours = estimate_gpu_hours(spec)
    return None if hours is None else hours * _SECONDS_AN_HOUR / spec.num_steps / spec.verl.num_gpus


def estimate_scoring_hours(spec: EvalSpec, source: str) -> float | None:
    """Return the H100 hours that an evaluation of the model `source` takes, None where its size is not known."""
    shape = model_shape(source)
    if shape is None:
        return None
    protocols = load_protocols()
    num_answers = sum(
        (choice.num_questions or protocols[choice.name].num_questions or 0)
        * (choice.samples_per_question or protocols[choice.name].samples_per_question)
        for choice in spec.benchmarks
    )
    num_tokens = num_answers * spec.max_response_tokens * ASSUMED_LENGTH_SHARE
    return num_tokens * shape.parameters / PARAMETER_TOKENS_A_SECOND / _SECONDS_AN_HOUR
