"""Memory and disk that a run needs, in bytes, by its specification and without PyTorch."""

from dataclasses import dataclass

from jobs.preflight.disk_estimate import checkpoint_bytes, estimate_disk_bytes
from jobs.preflight.embedded_memory import estimate_peak
from jobs.preflight.model_shapes import model_shape
from jobs.preflight.verl_memory import MemoryEstimate, estimate_memory
from jobs.specs.train import TrainSpec


@dataclass(frozen=True, slots=True)
class ResourceEstimate:
    """Bytes; numbers that depend on the model's size are None if it is not known on this machine."""

    num_gpus: int
    """0 for the embedded engine, which uses the machine's GPU if it has one."""
    memory: int | None
    """Peak of each GPU of the verl engine, or of the embedded engine on the CPU."""
    recordings: int
    checkpoints: int | None
    gpu_memory: MemoryEstimate | None = None
    """The parts of `memory` on each GPU of the verl engine; None in fine-tuning, where nothing is generated."""


def estimate_resources(spec: TrainSpec) -> ResourceEstimate:
    """Return a coarse estimate, not a measurement."""
    shape, recordings = model_shape(spec.model.source, spec.model.revision), estimate_disk_bytes(spec)
    num_gpus = spec.verl.num_gpus if spec.engine == "verl" else 0
    if shape is None:
        return ResourceEstimate(num_gpus, None, recordings, None)
    checkpoints = checkpoint_bytes(shape, spec)
    if spec.engine != "verl":
        return ResourceEstimate(num_gpus, estimate_peak(shape, spec), recordings, checkpoints)
    estimate = estimate_memory(shape, spec)
    if spec.sft is not None:
        return ResourceEstimate(num_gpus, estimate.update, recordings, checkpoints)
    return ResourceEstimate(num_gpus, max(estimate.update, estimate.rollout), recordings, checkpoints, estimate)
