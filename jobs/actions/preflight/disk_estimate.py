"""The disk space that a run will need, and all that it needs, by its specification and without PyTorch."""

from dataclasses import dataclass

from exgrpo.jobs.actions.preflight.memory_estimate import MemoryEstimate, estimate_memory, estimate_peak
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.pretrained.model_shapes import ModelShape

ASSUMED_SUCCESS_RATE = 0.5
"""Share of fresh trajectories that are correct."""
ASSUMED_LENGTH_SHARE = 0.25
"""Mean response length over the longest allowed, about that of the paper's run (2,000 of 8,192)."""

# Bytes a token in a record, measured on 244,000 tokens drawn with the word frequencies of a language.
# Real text compresses better than words in random order.
TOKEN_ID_BYTES = 1.6
ENTROPY_BYTES = 2.0
LOG_PROB_BYTES = 3.95
TEXT_BYTES = 2.3
SEGMENT_BYTES = 8.0
ROW_BYTES = 90.0
EVENT_BYTES = 12_000.0
CANDIDATE_BYTES = 60.0
"""One candidate of a selection, in an event."""
ASSUMED_CANDIDATES = 8
"""Candidates of a drawn question."""

CHECKPOINT_PARAMETER_BYTES = 12
"""One parameter in a checkpoint: float32 weight and AdamW's two moments."""
FROZEN_PARAMETER_BYTES = 4
"""One that is not trained: float32 weight."""

_KEPT_SHARES = {"all": 1.0, "successes": ASSUMED_SUCCESS_RATE, "sampled": 1 / 16, "none": 0.0}


@dataclass(frozen=True, slots=True)
class DiskEstimate:
    """Bytes by use; checkpoints are not counted, since their size depends on the model."""

    texts: float
    token_data: float
    replays: float
    buffer_segments: float
    events: float

    @property
    def total(self) -> int:
        """The sum."""
        return round(self.texts + self.token_data + self.replays + self.buffer_segments + self.events)


def estimate_disk(spec: TrainSpec, mean_response_tokens: float | None = None) -> DiskEstimate:
    """Return the bytes that a run records over all its steps; a response is by default a quarter of the longest."""
    config, steps = spec.algorithm, spec.num_steps
    tokens = mean_response_tokens or config.max_response_tokens * ASSUMED_LENGTH_SHARE
    num_replays = config.num_experiential_wanted * steps
    num_rollouts = 0 if spec.sft is not None else config.rollouts_per_question
    num_fresh = config.batch_size * num_rollouts * steps - num_replays
    num_stored = num_fresh * ASSUMED_SUCCESS_RATE if config.replays_experience else 0.0
    if config.limits_buffer:
        each_step = num_stored / steps
        held = min(config.buffer_capacity or num_stored, each_step * (config.buffer_age or steps))
        # A checkpoint needs what was held when it was written.
        num_since = each_step * spec.checkpoint_interval * (spec.num_checkpoints_kept + 1)
        num_stored = min(num_stored, held * (1 + spec.keeps_best_checkpoint) + num_since)
    kept = _KEPT_SHARES[spec.recording.token_data]
    # With `all`, the embedded engine records what the update saw, of replayed trajectories too.
    is_seen = spec.recording.token_data == "all" and spec.engine == "embedded"
    seen = is_seen * LOG_PROB_BYTES * (1 + (config.entropy_coefficient > 0.0) + (config.kl_coefficient > 0.0))
    return DiskEstimate(
        texts=num_fresh * (tokens * TEXT_BYTES + ROW_BYTES),
        token_data=num_fresh * kept * tokens * (TOKEN_ID_BYTES + ENTROPY_BYTES + LOG_PROB_BYTES + seen),
        replays=num_replays * tokens * (TOKEN_ID_BYTES + ENTROPY_BYTES + 2 * LOG_PROB_BYTES + seen),
        buffer_segments=num_stored * tokens * SEGMENT_BYTES,
        events=steps * EVENT_BYTES + num_replays * ASSUMED_CANDIDATES * CANDIDATE_BYTES,
    )


def checkpoint_bytes(shape: ModelShape, spec: TrainSpec) -> int:
    """Return the bytes of the checkpoints that a run keeps, and of one more, written before the oldest is removed.

    With adapters those of the verl engine hold the whole model too.
    """
    num_written = -(-spec.num_steps // spec.checkpoint_interval)
    frozen = shape.parameters if spec.engine == "verl" and spec.model.lora is not None else 0
    each = shape.trained_parameters(spec.model) * CHECKPOINT_PARAMETER_BYTES + frozen * FROZEN_PARAMETER_BYTES
    return each * min(num_written, spec.num_checkpoints_kept + 1 + spec.keeps_best_checkpoint)


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
    """The parts of `memory` on each GPU; None for the embedded engine, or if the model's size is not known."""


def estimate_resources(spec: TrainSpec, shape: ModelShape | None) -> ResourceEstimate:
    """Return a coarse estimate, not a measurement; `shape` is the model's, None where it is not known."""
    recordings = estimate_disk(spec).total
    num_gpus = spec.num_gpus if spec.engine == "verl" else 0
    if shape is None:
        return ResourceEstimate(num_gpus, None, recordings, None)
    checkpoints = checkpoint_bytes(shape, spec)
    if spec.engine != "verl":
        return ResourceEstimate(num_gpus, estimate_peak(shape, spec), recordings, checkpoints)
    estimate = estimate_memory(shape, spec)
    return ResourceEstimate(num_gpus, max(estimate.update, estimate.rollout), recordings, checkpoints, estimate)
