"""The memory that a run of the verl engine needs on each GPU, from the model's shape and the specification."""

from dataclasses import dataclass

from jobs.machine.disk import GIB
from jobs.preflight.model_shapes import ModelShape
from jobs.specs.train import TrainSpec

ASSUMED_GPU_BYTES = round(79.6 * GIB)
"""What a GPU of 80 GB has for programs; vLLM's share is one of it."""
OVERHEAD_BYTES = 3 * GIB
"""CUDA contexts of trainer and vLLM, NCCL's buffers and vLLM's graphs, together; assumed, not measured."""
MOST_SEQUENCES = 256
"""verl's `max_num_seqs`: sequences that one copy of the model generates at once."""

_MASTER_BYTES = 4
_GRADIENT_BYTES = 4
_MOMENTS_BYTES = 8
_COMPUTE_BYTES = 2
_LOGIT_BYTES = 14
"""A logit in bfloat16 and three float32 values while its chunk's log-probs, or their gradient, are computed."""
_CHUNK_TOKENS = 512
"""Tokens whose logits verl's fused kernels hold at once."""
_LIVE_HIDDEN = 20
_LIVE_INTERMEDIATE = 7
"""Values a token, of width `hidden` and of the feed-forward part, that one layer holds at its gradient's peak."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one GPU by use; updates and generation alternate."""

    parameters: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    rollout_weights: int
    kv_cache: int
    """Of as many sequences of full length as one GPU generates at once; vLLM queues what does not fit."""
    kv_cache_room: int
    """The part of vLLM's share left for it on a GPU of 80 GB."""
    overhead: int = OVERHEAD_BYTES

    @property
    def update(self) -> int:
        """Peak of an update."""
        state = self.weights + self.gradients + self.optimizer
        return state + self.activations + self.logits + self.overhead

    @property
    def rollout(self) -> int:
        """Peak of generation, with the cache that fits; the training state remains in memory."""
        cache = min(self.kv_cache, self.kv_cache_room)
        return self.weights + self.optimizer + self.rollout_weights + cache + self.overhead

    @property
    def parts(self) -> list[tuple[str, int, str]]:
        """Name, bytes and what to know of each part, and of both peaks."""
        return [
            ("weights", self.weights, "float32, sharded, and the current layer"),
            ("gradients", self.gradients, ""),
            ("optimizer", self.optimizer, "AdamW's two moments"),
            ("activations", self.activations, "with gradient checkpointing"),
            ("logits", self.logits, "of one chunk, and their matrix's gradient"),
            ("contexts, NCCL, graphs", self.overhead, "assumed"),
            ("update, all together", self.update, ""),
            ("rollout weights", self.rollout_weights, ""),
            ("KV cache", self.kv_cache, f"needed; {self.kv_cache_room / GIB:.1f} GiB of 79.6 are left for it"),
            ("rollout, all together", self.rollout, "with the cache that fits"),
        ]


def estimate_memory(shape: ModelShape, spec: TrainSpec) -> MemoryEstimate:
    """Return the bytes that a run needs on each GPU; a coarse upper bound, not a measurement."""
    verl, parameters, trained = spec.verl, shape.parameters, shape.trained_parameters(spec.model)
    compute_bytes = 4 if spec.model.device == "cpu" else _COMPUTE_BYTES
    num_shards = verl.num_gpus
    num_copies = num_shards // verl.tensor_parallel
    num_sequences = -(-spec.algorithm.batch_size * spec.algorithm.rollouts_per_question // num_copies)
    rollout_weights = parameters * compute_bytes // verl.tensor_parallel
    per_sequence = shape.cache_values_per_token * compute_bytes * spec.sequence_tokens // verl.tensor_parallel
    return MemoryEstimate(
        parameters=parameters,
        weights=_weights(shape, spec, num_shards, compute_bytes),
        gradients=trained * _GRADIENT_BYTES // num_shards,
        optimizer=trained * _MOMENTS_BYTES // num_shards,
        activations=_activations(shape, spec.tokens_per_gpu, compute_bytes),
        logits=_logits(shape, spec.tokens_per_gpu, compute_bytes),
        rollout_weights=rollout_weights,
        kv_cache=min(num_sequences, MOST_SEQUENCES) * per_sequence,
        kv_cache_room=max(0, round(verl.gpu_memory_utilization * ASSUMED_GPU_BYTES) - rollout_weights),
    )


def _weights(shape: ModelShape, spec: TrainSpec, num_shards: int, compute_bytes: int) -> int:
    """Return sharded master weights, those of the reference model if there is a KL penalty, and what is gathered.

    That is two layers, and in the whole pass all that is in none: embedding, output matrix and last norm. With adapters
    the model without them is the reference.
    """
    lora = spec.model.lora
    num_models = 2 if spec.algorithm.kl_coefficient > 0 and lora is None else 1
    adapters = 0 if lora is None else shape.adapter_parameters(lora)
    outside_layers = shape.parameters - shape.layers * shape.layer_parameters
    gathered = (outside_layers + 2 * (shape.layer_parameters + adapters // shape.layers)) * compute_bytes
    return (num_models * shape.parameters + adapters) * _MASTER_BYTES // num_shards + gathered


def _activations(shape: ModelShape, num_tokens: int, compute_bytes: int) -> int:
    """Return one saved input a layer (gradient checkpointing) and the values inside the current layer."""
    saved = shape.layers * shape.hidden
    live = _LIVE_HIDDEN * shape.hidden + _LIVE_INTERMEDIATE * shape.intermediate
    return num_tokens * (saved + live) * compute_bytes


def _logits(shape: ModelShape, num_tokens: int, compute_bytes: int) -> int:
    """Return the logits of one chunk, and the gradient of the output matrix to which all chunks add."""
    return min(num_tokens, _CHUNK_TOKENS) * shape.vocabulary * _LOGIT_BYTES + shape.embedding_parameters * compute_bytes
