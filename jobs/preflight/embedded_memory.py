"""Peak memory of the embedded engine on a CPU, from a model's shape and a specification, without PyTorch."""

from jobs.preflight.model_shapes import ModelShape
from jobs.specs.train import TrainSpec

FLOAT = 4
"""Bytes of a float32 number."""
PROGRAM_BYTES = 470_000_000
"""Python with PyTorch, transformers and a tokenizer, before weights are read."""
WORKING_BYTES = 2 * 2**30
"""Most memory of a batch's keys and values, or of a micro-batch's activations (`PolicyModel.working_bytes`)."""
MAX_LOGITS = 2**26
"""Logits of a chunk (`jobs/engines/embedded/vocabulary.py`)."""
_NUM_KEY_COPIES = 9
"""Copies of keys and values in training: the layer's, and those before each block of columns."""
_SUPERVISED_GAPS = 1.4
"""Supervised batches differ most in length, and gaps between arrays of former ones add up over steps."""
_TRAINING_LOGITS, _SAMPLING_LOGITS = 3, 6
"""Arrays of the size of a chunk's logits that are there at a time."""


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
