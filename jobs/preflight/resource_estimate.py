"""Memory and disk that a run needs, in bytes, by its specification and without PyTorch."""

from dataclasses import dataclass

from jobs.preflight.disk_estimate import checkpoint_bytes, estimate_disk_bytes
from jobs.preflight.model_shapes import model_shape
from jobs.preflight.verl_memory import estimate_memory
from jobs.specs.train import TrainSpec

TRAINING_PARAMETER_BYTES = 16
"""One parameter in training: float32 weight, gradient and AdamW's two moments."""


@dataclass(frozen=True, slots=True)
class ResourceEstimate:
    """Bytes; numbers that depend on the model's size are None if it is not known on this machine."""

    num_gpus: int
    """0 for the embedded engine, which uses the machine's GPU if it has one."""
    memory: int | None
    """Peak of each GPU of the verl engine; of the embedded engine weights, gradients and optimizer alone."""
    recordings: int
    checkpoints: int | None


def estimate_resources(spec: TrainSpec) -> ResourceEstimate:
    """Return a coarse estimate, not a measurement."""
    shape, recordings = model_shape(spec.model.source, spec.model.revision), estimate_disk_bytes(spec)
    num_gpus = spec.verl.num_gpus if spec.engine == "verl" else 0
    if shape is None:
        return ResourceEstimate(num_gpus, None, recordings, None)
    if spec.engine == "verl":
        estimate = estimate_memory(shape, spec)
        memory = max(estimate.update, 0 if spec.sft is not None else estimate.rollout)
    else:
        memory = shape.parameters * TRAINING_PARAMETER_BYTES
    return ResourceEstimate(num_gpus, memory, recordings, checkpoint_bytes(shape.parameters, spec))
