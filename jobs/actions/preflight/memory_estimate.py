"""Memory and disk of a run, from a model's shape and a specification, without PyTorch.

Of the embedded engine it is the peak on a CPU, of the verl engine what each GPU needs.
"""

from dataclasses import dataclass

from exgrpo.jobs.machine.hardware import GIB, list_gpus
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.pretrained.model_shapes import ModelShape

FLOAT = 4
"""Bytes of a float32 number."""
PROGRAM_BYTES = 470_000_000
"""Python with PyTorch, transformers and a tokenizer, before weights are read."""
WORKING_BYTES = 2 * 2**30
"""Most memory of a batch's keys and values, or of a micro-batch's activations (`PolicyModel.working_bytes`)."""
MAX_LOGITS = 2**26
"""Logits of a chunk (`jobs/training/engines/embedded/sampling.py`)."""
_NUM_KEY_COPIES = 9
"""Copies of keys and values in training: the layer's, and those before each block of columns."""
_SUPERVISED_GAPS = 1.4
"""Supervised batches differ most in length, and gaps between arrays of former ones add up over steps."""
_TRAINING_LOGITS, _SAMPLING_LOGITS = 3, 6
"""Arrays of the size of a chunk's logits that are there at a time."""

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


def training_state_bytes(shape: ModelShape, spec: TrainSpec) -> int:
    """Return the bytes of weights, and of gradients and AdamW's two moments of what is trained."""
    return FLOAT * (shape.parameters + 3 * shape.trained_parameters(spec.model))


def estimate_peak(shape: ModelShape, spec: TrainSpec) -> int:
    """Return the peak in bytes, if prompts and responses are as long as they may be.

    In float32; bfloat16 takes less. Whole runs of 60 to 110 steps took from 9% more (`smollm2-word-problems-sft`) to 7%
    less (`smollm2-word-problems` with adapters).
    """
    peak = _update(shape, spec)
    if spec.sft is None:
        peak = max(peak, _rollout(shape, spec))
    # A KL penalty is against a copy of all weights, with adapters against the weights themselves.
    has_copy = spec.algorithm.kl_coefficient > 0.0 and spec.model.lora is None
    return PROGRAM_BYTES + FLOAT * shape.parameters * (2 if has_copy else 1) + peak


def _update(shape: ModelShape, spec: TrainSpec) -> int:
    algorithm = spec.algorithm
    num_samples = 1 if spec.sft is not None else algorithm.rollouts_per_question
    num_questions = algorithm.batch_size if spec.sft is not None else algorithm.mini_batch_size
    # The engine cuts micro-batches by a higher count, which leaves room for short-lived arrays; a prompt is in a batch
    # once, and counts an eighth in each further row.
    row_tokens = algorithm.max_response_tokens + algorithm.max_prompt_tokens * (1 + 7 / num_samples) / 8
    fitting = int(WORKING_BYTES / (_bytes_per_token(shape, num_hidden=14) * row_tokens))
    num_rows = max(1, min(num_questions * num_samples, fitting))
    num_responses = num_rows * algorithm.max_response_tokens
    num_tokens = -(-num_rows // num_samples) * algorithm.max_prompt_tokens + num_responses
    logits = FLOAT * _TRAINING_LOGITS * min(MAX_LOGITS, num_responses * shape.vocabulary)
    activations = num_tokens * _bytes_per_token(shape, num_hidden=10)
    if spec.sft is not None:
        activations = int(_SUPERVISED_GAPS * activations)
    trained = 3 * shape.trained_parameters(spec.model)
    return FLOAT * (trained + _fused_parameters(shape, spec)) + activations + logits


def _rollout(shape: ModelShape, spec: TrainSpec) -> int:
    num_rows = spec.algorithm.batch_size * spec.algorithm.rollouts_per_question
    cache = min(WORKING_BYTES, FLOAT * shape.cache_values_per_token * num_rows * spec.sequence_tokens)
    logits = FLOAT * _SAMPLING_LOGITS * min(MAX_LOGITS, num_rows * shape.vocabulary)
    moments = 2 * shape.trained_parameters(spec.model)
    packed = shape.layers * shape.layer_parameters + shape.embedding_parameters
    return FLOAT * (moments + packed) + cache + logits


def _bytes_per_token(shape: ModelShape, num_hidden: int) -> int:
    """Return what training keeps of one token in all layers, `num_hidden` times the hidden size among it."""
    size = shape.head_size or shape.hidden // shape.heads
    numbers = num_hidden * shape.hidden + 4 * shape.intermediate + _NUM_KEY_COPIES * shape.kv_heads * size
    return FLOAT * numbers * shape.layers


def _fused_parameters(shape: ModelShape, spec: TrainSpec) -> int:
    """Return how many weights are copied for a forward pass and kept until their gradients are known."""
    size = shape.head_size or shape.hidden // shape.heads
    outputs = shape.hidden * (shape.heads * size + shape.intermediate)  # without adapters these are used as they are
    return shape.layers * (shape.layer_parameters - (0 if spec.model.lora is not None else outputs))


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one GPU by use; updates and generation alternate, or are on different GPUs."""

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
    """The part of vLLM's share left for it."""
    one_sequence: int
    """Cache of one sequence of full length, without which vLLM does not start."""
    vllm_share: int
    """What vLLM takes, whatever it needs; 0 where nothing is generated."""
    gathered: int
    """The part of the weights that an update gathers."""
    gpu: int
    """What a GPU has."""
    has_separate_gpus: bool
    """Whether other GPUs generate than train."""
    overhead: int = OVERHEAD_BYTES

    @property
    def update(self) -> int:
        """Peak of an update."""
        state = self.weights + self.gradients + self.optimizer
        return state + self.activations + self.logits + self.overhead

    @property
    def rollout(self) -> int:
        """Peak of generation, with the cache that fits; a training state on the same GPU remains in memory."""
        cache = min(self.kv_cache, self.kv_cache_room)
        return self._beside + self.rollout_weights + cache + self.overhead

    @property
    def shortage(self) -> str:
        """What may not fit into a GPU's memory, by the upper bounds, and what to change; "" where all fits."""
        return self._shortage(self.update, max(self.rollout, self._least_rollout))

    @property
    def sure_shortage(self) -> str:
        """What does not fit: measured updates took a fiftieth less than the estimate, a tenth is left for others."""
        state = self.weights + self.gradients + self.optimizer
        return self._shortage(max(state, round(0.9 * self.update)), self._least_rollout)

    @property
    def _least_rollout(self) -> int:
        return self._beside + self.vllm_share

    @property
    def _beside(self) -> int:
        return 0 if self.has_separate_gpus else self.weights - self.gathered + self.optimizer

    def _shortage(self, update: int, rollout: int) -> str:
        size, share = _gib(self.gpu), "verl.gpu_memory_utilization"
        least = self.rollout_weights + self.one_sequence
        if update > self.gpu:
            return (
                f"an update needs {_gib(self.update)} on each GPU of {size}; raise verl.gpus_per_node or "
                "verl.num_nodes, lower verl.max_tokens_per_gpu, or choose a smaller model"
            )
        if self.vllm_share and least > self.vllm_share:
            return (
                f"weights and cache of one sequence need {_gib(least)} of the {_gib(self.vllm_share)} that vLLM may "
                f"use of each GPU of {size}; raise verl.tensor_parallel or {share}"
            )
        if rollout > self.gpu:
            place, more = " next to the training state", "raise verl.gpus_per_node or verl.num_nodes, or "
            if self.has_separate_gpus:
                place = more = ""
            return f"generation{place} needs {_gib(rollout)} on each GPU of {size}; {more}lower {share}"
        return ""

    @property
    def parts(self) -> list[tuple[str, int, str]]:
        """Name, bytes and what to know of each part, and of both peaks."""
        trains, generates = ("each GPU that trains", "each that generates; ") if self.has_separate_gpus else ("", "")
        return [
            ("weights", self.weights, "float32, sharded, and the current layer"),
            ("gradients", self.gradients, ""),
            ("optimizer", self.optimizer, "AdamW's two moments"),
            ("activations", self.activations, "with gradient checkpointing"),
            ("logits", self.logits, "of one chunk, and their matrix's gradient"),
            ("contexts, NCCL, graphs", self.overhead, "assumed"),
            ("update, all together", self.update, trains),
            ("rollout weights", self.rollout_weights, ""),
            ("KV cache", self.kv_cache, f"needed; {self.kv_cache_room / GIB:.1f} GiB are left for it"),
            ("rollout, all together", self.rollout, f"{generates}with the cache that fits"),
            ("a GPU has", self.gpu, ""),
        ]


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def known_gpu_bytes(spec: TrainSpec) -> int | None:
    """Return the memory of a GPU of the run: as the specification says, or of this machine's smallest; else None."""
    if spec.verl.gpu_gib is not None:
        return round(spec.verl.gpu_gib * GIB)
    gpus = [] if spec.verl.joins_cluster or spec.model.device == "cpu" else list_gpus()
    return min((gpu.total_bytes for gpu in gpus), default=None)


def estimate_memory(shape: ModelShape, spec: TrainSpec) -> MemoryEstimate:
    """Return the bytes that a run needs on each GPU; a coarse upper bound, not a measurement."""
    verl, parameters, trained = spec.verl, shape.parameters, shape.trained_parameters(spec.model)
    num_shards = verl.num_gpus
    num_generating = verl.num_nodes * spec.generating_gpus_per_node
    num_copies = (num_generating or num_shards) // verl.tensor_parallel
    num_sequences = -(-spec.algorithm.batch_size * spec.algorithm.rollouts_per_question // num_copies)
    rollout_weights = parameters * _COMPUTE_BYTES // verl.tensor_parallel
    gpu = known_gpu_bytes(spec) or ASSUMED_GPU_BYTES
    share = round(verl.gpu_memory_utilization * gpu)
    per_sequence = shape.cache_values_per_token * _COMPUTE_BYTES * spec.sequence_tokens // verl.tensor_parallel
    return MemoryEstimate(
        parameters=parameters,
        weights=_sharded_weights(shape, spec, num_shards) + _gathered_weights(shape, spec),
        gradients=trained * _GRADIENT_BYTES // num_shards,
        optimizer=trained * _MOMENTS_BYTES // num_shards,
        activations=_activations(shape, spec.tokens_per_gpu),
        logits=_logits(shape, spec.tokens_per_gpu),
        rollout_weights=rollout_weights,
        kv_cache=min(num_sequences, MOST_SEQUENCES) * per_sequence,
        kv_cache_room=max(0, share - rollout_weights),
        one_sequence=per_sequence,
        vllm_share=share,
        gathered=_gathered_weights(shape, spec),
        gpu=gpu,
        has_separate_gpus=num_generating > 0,
    )


def _sharded_weights(shape: ModelShape, spec: TrainSpec, num_shards: int) -> int:
    """Return master weights, and those of the reference model if there is a KL penalty.

    With adapters the model without them is the reference.
    """
    lora = spec.model.lora
    num_models = 2 if spec.algorithm.kl_coefficient > 0 and lora is None else 1
    adapters = 0 if lora is None else shape.adapter_parameters(lora)
    return (num_models * shape.parameters + adapters) * _MASTER_BYTES // num_shards


def _gathered_weights(shape: ModelShape, spec: TrainSpec) -> int:
    """Return what is gathered: two layers, and in the whole pass embedding, output matrix and last norm."""
    adapters = 0 if spec.model.lora is None else shape.adapter_parameters(spec.model.lora)
    outside_layers = shape.parameters - shape.layers * shape.layer_parameters
    return (outside_layers + 2 * (shape.layer_parameters + adapters // shape.layers)) * _COMPUTE_BYTES


def _activations(shape: ModelShape, num_tokens: int) -> int:
    """Return one saved input a layer (gradient checkpointing) and the values inside the current layer."""
    saved = shape.layers * shape.hidden
    live = _LIVE_HIDDEN * shape.hidden + _LIVE_INTERMEDIATE * shape.intermediate
    return num_tokens * (saved + live) * _COMPUTE_BYTES


def _logits(shape: ModelShape, num_tokens: int) -> int:
    """Return the logits of one chunk, and the gradient of the output matrix to which all chunks add."""
    return (
        min(num_tokens, _CHUNK_TOKENS) * shape.vocabulary * _LOGIT_BYTES + shape.embedding_parameters * _COMPUTE_BYTES
    )


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
